"""The URLs of TensorFlow Serving's REST API: find the model, call the inference core, encode the result. No sockets."""

from __future__ import annotations

import logging
import re
import time
from contextlib import ExitStack
from urllib.parse import unquote

from savedmodel_bakery.serving import incident, metrics
from savedmodel_bakery.serving.access.access import ANYONE, Access
from savedmodel_bakery.serving.access.identity import Identity
from savedmodel_bakery.serving.access.required_roles import LIVE_PATH, PUBLIC_PATHS, rest_role
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.documents import Documents
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.inference import metadata
from savedmodel_bakery.serving.inference.examples import ExamplesCall, classify, regress
from savedmodel_bakery.serving.inference.predict import (
    DEFAULT_SIGNATURE,
    PredictCall,
    SignatureNotFoundError,
    input_dtypes,
    predict,
)
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.rest.codec import Request, Response, decode_body
from savedmodel_bakery.serving.rest.errors import error_response, page
from savedmodel_bakery.wire import messages
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import status as status_json
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

_CHARACTER = r"[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
# RFC 3986, 3
_TARGET = re.compile(rf"(?:{_CHARACTER})*(?:\?(?:{_CHARACTER}|\?)*)?(?:#(?:{_CHARACTER}|\?)*)?", re.ASCII)
KNOWN_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")

CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))


class _VersionError(Exception):
    """A version does not fit a signed 64-bit integer; the real server's response to that has an empty body."""


class Handlers:
    """All URLs.

    Args:
        registry: the loaded models.
        access: which callers may send which requests.
        limits: of each request.
        cors: add CORS headers to responses.
        check_method_names: reject signatures that were exported for another method.
        metrics_path: path of the Prometheus page; None to not serve it.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        access: Access,
        limits: Limits,
        cors: bool,
        check_method_names: bool,
        metrics_path: str | None = None,
    ) -> None:
        self._registry = registry
        self._check_method_names = check_method_names
        self._limits = limits
        self._documents = Documents(limits.json_nesting)
        self._metrics_path = metrics_path
        self._access = access
        self._cors = cors
        self._headers = CORS_HEADERS if cors else {}
        if cors and access.needs_token:
            self._headers = CORS_HEADERS | {"Access-Control-Allow-Headers": "Content-Type, Authorization"}

    def authorize(self, request: Request) -> Identity | Response:
        """Return the caller of a request, or the response to one that may not send it; does not need the body.

        Health needs no token. Neither does OPTIONS with CORS: browsers ask without a token what they may send (Fetch
        standard, "CORS-preflight fetch").
        """
        path = request.path
        is_preflight = self._cors and request.method == "OPTIONS" and path != self._metrics_path
        if path in PUBLIC_PATHS or is_preflight:
            return ANYONE
        try:
            return self._access.authorize(
                request.headers.get("authorization"),
                is_local=False,  # matters for admins only, and REST has nothing for them
                role=rest_role(path, metrics_path=self._metrics_path),
            )
        except StatusError as error:
            return self.reject(error)

    def reject(self, error: StatusError, request: Request | None = None) -> Response:
        """Return the response to a request that is rejected before it is handled, and count it.

        Args:
            error: the reason.
            request: of a known caller; its model is counted.
        """
        call = request.call if request else None
        model_name = self._registry.known_name(_model_name(call))
        metrics.count_request(model_name, call[4] if call else "", "REST", error.code, 0.0)
        return error_response(error, self._headers)

    def runs_model(self, request: Request) -> bool:
        """Return whether a request runs a model, and so waits for its turn; does not need the body."""
        return request.call is not None

    def respond(self, request: Request, context: RequestContext) -> Response:
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
        if path in PUBLIC_PATHS and request.method in ("GET", "HEAD"):
            is_healthy = path == LIVE_PATH or self._registry.is_ready()
            return Response(200 if is_healthy else 503, b"")
        if not path.lower().startswith("/v1/"):
            return page(404, "Not Found")
        if request.method == "OPTIONS":
            origin = request.headers.get("origin", "")
            status = 200 if "http://" in origin or "https://" in origin else 400
            return Response(status, b"", "text/html; charset=ISO-8859-1", self._headers)
        return self._respond_api(request, context)

    def _respond_api(self, request: Request, context: RequestContext) -> Response:
        """Handle a request under `/v1/` and record it in the metrics."""
        started = time.perf_counter()
        match = request.call or request.question
        model_name = _model_name(match)
        code = Code.OK
        try:
            response = Response(200, self._call(request, match, model_name, context), headers=self._headers)
        except _VersionError:
            code, response = Code.INVALID_ARGUMENT, Response(400, b"", headers=self._headers)
        except StatusError as error:
            code, response = error.code, error_response(error, self._headers)
        except Exception:
            reported = incident.report(logger, f"{request.method} {request.target}")
            code, response = reported.code, error_response(reported, self._headers)
        verb = request.call[4] if request.call else ""
        metrics.count_request(self._registry.known_name(model_name), verb, "REST", code, time.perf_counter() - started)
        return response

    def _call(self, request: Request, match: re.Match[str] | None, model_name: str, context: RequestContext) -> bytes:
        if match is None:
            raise invalid_argument(f"Malformed request: {request.method} {request.target}")
        choice = _choice(match, model_name)
        if not model_name:
            raise invalid_argument("Missing model name in request.")
        context.check_model(model_name)
        if request.method == "GET":
            # Like the real server, match /METADATA too, but return the status for it.
            return self._metadata(choice) if match[4] == "/metadata" else self._status(choice)
        if match[4] == "predict":
            return self._predict(choice, request, context)
        return self._examples(choice, request, match[4], context)

    def _predict(self, choice: ModelChoice, request: Request, context: RequestContext) -> bytes:
        with ExitStack() as stack:
            with self._documents.parsing(context) as limits:
                body = predict_json.decode_request(self._body(request, context), limits)
                servable = stack.enter_context(self._registry.acquire(choice))
                try:
                    dtypes = input_dtypes(servable.runtime.signatures, body.signature_name)
                except SignatureNotFoundError as error:
                    raise predict_json.signature_not_found(error.name) from None
                signature_name = body.signature_name or DEFAULT_SIGNATURE
                inputs, row_format = predict_json.decode_inputs(body.document, dtypes, signature_name)
            call = PredictCall(signature_name, inputs, check_method_name=self._check_method_names)
            outputs = predict(servable, call, context)
        context.charge(predict_json.response_size(outputs))
        return predict_json.encode_response(outputs, row_format=row_format)

    def _examples(self, choice: ModelChoice, request: Request, verb: str, context: RequestContext) -> bytes:
        with self._documents.parsing(context) as limits:
            signature_name, examples = examples_json.decode_request(self._body(request, context), limits)
        call = ExamplesCall(signature_name, examples, self._check_method_names)
        with self._registry.acquire(choice) as servable:
            if verb == "classify":
                return examples_json.encode_classifications(*classify(servable, call, context))
            return examples_json.encode_regressions(regress(servable, call, context))

    def _body(self, request: Request, context: RequestContext) -> bytes:
        return decode_body(request, context, self._limits.unpacked_bytes)

    def _status(self, choice: ModelChoice) -> bytes:
        response = messages.make_status_response(metadata.status(self._registry, choice))
        return status_json.encode_status(response)

    def _metadata(self, choice: ModelChoice) -> bytes:
        with self._registry.acquire(choice) as servable:
            response = messages.make_metadata_response(*metadata.metadata(servable))
        return status_json.encode_metadata(response)


def _model_name(match: re.Match[str] | None) -> str:
    # A name that is not valid UTF-8 keeps its bytes as surrogate escapes; no model has such a name.
    return unquote(match[1], errors="surrogateescape") if match and match[1] else ""


def _choice(match: re.Match[str], model_name: str) -> ModelChoice:
    version, label = match[2], match[3]
    digits = version and (version.lstrip("0") or "0")  # int() rejects thousands of digits
    if digits and (len(digits) > _MAX_DIGITS or int(digits) > _MAX_VERSION):
        raise _VersionError
    return ModelChoice(
        model_name,
        int(digits) if digits else None,
        unquote(label, errors="surrogateescape") if label is not None else None,
    )
