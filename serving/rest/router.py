"""The URLs of one port: which API has them, and who may use them. Knows no API itself.

Responds to everything outside of the APIs as tensorflow_model_server does.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from savedmodel_bakery.serving.access.access import ANYONE, PUBLIC_PATHS, Access, Identity, rest_role
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.http import FindRoute, Request, Response, Route, page
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire.status import Code, StatusError

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


def _page(status: int, title: str) -> Route:
    return Route(lambda _request, _context: page(status, title), api=None, is_page=True)


_NOT_FOUND = _page(404, "Not Found")
BAD_REQUEST = _page(400, "Bad Request")
_NOT_IMPLEMENTED = _page(501, "Not Implemented")


class Router:
    """All URLs of a port; the first API that has a request's URL gets the request.

    Without a `metrics_path` there is no Prometheus page. `public_paths` need no token, and `predict_path` needs the
    same as a model's URL. `allowed_hosts` are what the header Host may name, or empty for anything: a page of another
    site can have its own name resolve to this machine, and send requests as if they came from it (DNS rebinding).
    """

    def __init__(
        self,
        apis: Sequence[FindRoute],
        *,
        access: Access,
        cors: bool,
        metrics_path: str | None = None,
        predict_path: str | None = None,
        public_paths: Collection[str] = PUBLIC_PATHS,
        allowed_hosts: Collection[str] = (),
    ) -> None:
        self._apis = apis
        self._access = access
        self._metrics_path = metrics_path
        self._predict_path = predict_path
        self._public_paths = public_paths
        self._allowed_hosts = allowed_hosts
        self._cors = cors
        self.cors_headers = CORS_HEADERS if cors else {}
        if cors and access.needs_token:
            self.cors_headers = CORS_HEADERS | {"Access-Control-Allow-Headers": "Content-Type, Authorization"}

    def find(self, request: Request) -> Route:
        """Return where a request goes. Does not need the body."""
        if request.method not in KNOWN_METHODS:
            return _NOT_IMPLEMENTED
        if not _TARGET.fullmatch(request.target):
            return BAD_REQUEST
        if request.path == self._metrics_path:
            return Route(_metrics, api=None, is_page=True)
        for find in self._apis:
            route = find(request)
            if route:
                return route
        return _NOT_FOUND

    def authorize(self, request: Request) -> Identity:
        """Return the caller of a request. Does not need the body.

        Public paths need no token. Neither does OPTIONS with CORS: browsers ask without a token what they may send
        (Fetch standard, "CORS-preflight fetch").
        """
        if self._allowed_hosts:
            host = _PORT.sub("", request.headers.get("host", ""))
            if host and host.lower() not in self._allowed_hosts:
                names = ", ".join(self._allowed_hosts)
                message = f'the host "{host[:_SHOWN]}" is not allowed: must be {names}'
                raise StatusError(Code.PERMISSION_DENIED, message)
        path = request.path
        is_preflight = self._cors and request.method == "OPTIONS"
        is_public = path in self._public_paths and path != self._predict_path
        if (is_public or is_preflight) and path != self._metrics_path:
            return ANYONE
        return self._access.authorize(
            request.headers.get("authorization"),
            is_local=False,  # matters for admins only, and REST has nothing for them
            role=rest_role(path, metrics_path=self._metrics_path, predict_path=self._predict_path),
        )


def _metrics(request: Request, _context: RequestContext) -> Response:
    if request.target != request.path:
        message = f"Unexpected path: {request.target}. Should be {request.path}"
        return Response(400, message.encode(), "text/plain")
    return Response(200, metrics.page(), metrics.CONTENT_TYPE)
