"""The requests of one port: authorizes them, passes them to the API whose URL they have, and counts the calls.

Knows no API itself; responds to everything outside of them as tensorflow_model_server does.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.access.access import ANYONE, Access
from savedmodel_bakery.serving.access.identity import Identity
from savedmodel_bakery.serving.access.required_roles import PUBLIC_PATHS, rest_role
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import FindRoute, Route
from savedmodel_bakery.serving.http.error_responses import error_response, page
from savedmodel_bakery.serving.http.messages import Request, Response
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.serving.telemetry.calls import count_rejection
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

_CHARACTER = r"[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
# RFC 3986, 3
_TARGET = re.compile(rf"(?:{_CHARACTER})*(?:\?(?:{_CHARACTER}|\?)*)?(?:#(?:{_CHARACTER}|\?)*)?", re.ASCII)
_PORT = re.compile(r":\d*$")
_SHOWN = 100  # characters of a host
KNOWN_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")

CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}


class Router:
    """All URLs of a port.

    Args:
        apis: find the route of a request; the first one that has it counts.
        access: which callers may send which requests.
        known_name: returns the name of a model for the metrics, or an empty string for an unknown model.
        cors: add CORS headers to responses of the APIs.
        metrics_path: path of the Prometheus page; None to not serve it.
        public_paths: paths that need no token.
        allowed_hosts: what the header Host may name; empty for anything. A page of another site can have its own name
            resolve to this machine, and send requests as if they came from it (DNS rebinding).
    """

    def __init__(
        self,
        apis: Sequence[FindRoute],
        *,
        access: Access,
        known_name: Callable[[str], str],
        cors: bool,
        metrics_path: str | None = None,
        public_paths: Collection[str] = PUBLIC_PATHS,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self._apis = apis
        self._access = access
        self._known_name = known_name
        self._metrics_path = metrics_path
        self._public_paths = public_paths
        self._allowed_hosts = allowed_hosts
        self._cors = cors
        self._headers = CORS_HEADERS if cors else {}
        if cors and access.needs_token:
            self._headers = CORS_HEADERS | {"Access-Control-Allow-Headers": "Content-Type, Authorization"}

    def authorize(self, request: Request) -> Identity | Response:
        """Return the caller of a request, or the response to one that may not send it; does not need the body.

        Public paths need no token. Neither does OPTIONS with CORS: browsers ask without a token what they may send
        (Fetch standard, "CORS-preflight fetch").
        """
        if self._allowed_hosts:
            host = _PORT.sub("", request.headers.get("host", ""))
            if host and host.lower() not in self._allowed_hosts:
                names = ", ".join(self._allowed_hosts)
                return self.reject(
                    StatusError(Code.PERMISSION_DENIED, f'the host "{host[:_SHOWN]}" is not allowed: must be {names}')
                )
        path = request.path
        is_preflight = self._cors and request.method == "OPTIONS"
        if (path in self._public_paths or is_preflight) and path != self._metrics_path:
            return ANYONE
        try:
            return self._access.authorize(
                request.headers.get("authorization"),
                is_local=False,  # matters for admins only, and REST has nothing for them
                role=rest_role(path, metrics_path=self._metrics_path),
            )
        except StatusError as error:
            return self.reject(error)

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; None if its URL is of no API. Does not need the body."""
        return next((route for find in self._apis if (route := find(request))), None)

    def reject(self, error: StatusError, route: Route | None = None) -> Response:
        """Return the response to a request that is rejected before it is handled, and count it.

        Args:
            error: the reason.
            route: of a request of a known caller; if it runs a model, that model is counted.
        """
        runs = route if route and route.runs_model else None
        model_name = self._known_name(runs.model_name if runs else "")
        metrics.count_request(model_name, (runs and runs.api) or "", "REST", error.code, 0.0)
        count_rejection("REST", error)
        return self._with_cors(error_response(error))

    def respond(self, request: Request, route: Route | None, context: RequestContext) -> Response:
        """Handle a request that is authorized; errors become responses."""
        if request.method not in KNOWN_METHODS:
            return page(501, "Not Implemented")
        if not _TARGET.fullmatch(request.target):
            return page(400, "Bad Request")
        path = request.path
        if path == self._metrics_path:
            if request.target != path:
                return Response(400, f"Unexpected path: {request.target}. Should be {path}".encode(), "text/plain")
            return Response(200, metrics.page(), metrics.CONTENT_TYPE)
        if route is None:
            return page(404, "Not Found")
        return self._with_cors(self._call(request, route, context))

    def _call(self, request: Request, route: Route, context: RequestContext) -> Response:
        """Handle a request of an API and record it in the metrics."""
        started = time.perf_counter()
        code = Code.OK
        try:
            response = route.handle(request, context)
        except StatusError as error:
            code, response = error.code, route.on_error(error)
            count_rejection("REST", error)
        except Exception:
            reported = incident.report(logger, f"{request.method} {request.target}", context.request_id)
            code, response = reported.code, error_response(reported)
        if route.api is not None:
            model_name = self._known_name(route.model_name)
            metrics.count_request(model_name, route.api, "REST", code, time.perf_counter() - started)
        return response

    def _with_cors(self, response: Response) -> Response:
        return replace(response, headers={**self._headers, **response.headers}) if self._headers else response
