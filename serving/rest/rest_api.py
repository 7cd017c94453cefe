"""The URLs of TensorFlow Serving's REST API: find the model, call the inference core, encode the result. No sockets."""

from __future__ import annotations

import re
import zlib
from contextlib import ExitStack
from functools import partial

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.admission.parsing import charge_unpacked, parsing, unpack
from savedmodel_bakery.serving.call.http import PREFLIGHT, Request, Response, Route, decode_name, error_response
from savedmodel_bakery.serving.inference.examples import ExamplesCall, classify, regress
from savedmodel_bakery.serving.inference.predict import (
    DEFAULT_SIGNATURE,
    PredictCall,
    SignatureNotFoundError,
    input_dtypes,
    predict,
)
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, parse_version
from savedmodel_bakery.wire import responses
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import predict_response
from savedmodel_bakery.wire.json.decode import parse_document
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_GZIP = 16 + zlib.MAX_WBITS

_NAME, _CHOICE = r"/([^/:]+)", r"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_CALL_URL = re.compile(rf"/v1/models{_NAME}{_CHOICE}:(?-i:(classify|regress|predict))", re.IGNORECASE)
_MODEL_URL = re.compile(rf"/v1/models(?:{_NAME})?{_CHOICE}(/metadata)?", re.IGNORECASE)


class _VersionError(StatusError):
    """A version does not fit a signed 64-bit integer; the real server's response to that has an empty body."""

    def __init__(self) -> None:
        super().__init__(Code.INVALID_ARGUMENT, "")


class RestApi:
    """All URLs of the API."""

    def __init__(self, registry: Registry, *, limits: Limits, check_method_names: bool) -> None:
        self._registry = registry
        self._check_method_names = check_method_names
        self._limits = limits

    def find(self, request: Request) -> Route | None:
        """Return where a request goes; see `FindRoute`. Everything below `/v1/` is the API's."""
        if not request.path.lower().startswith("/v1/"):
            return None
        if request.method == "OPTIONS":
            return PREFLIGHT
        call = _CALL_URL.fullmatch(request.target) if request.method == "POST" else None
        match = _MODEL_URL.fullmatch(request.target) if request.method == "GET" else call
        model_name = decode_name(match[1], errors="surrogateescape") if match else ""
        return Route(
            partial(self._respond, match, model_name),
            model_name,
            api=call[4] if call else "",
            runs_model=call is not None,
            on_error=_error_response,
        )

    def _respond(
        self, match: re.Match[str] | None, model_name: str, request: Request, context: RequestContext
    ) -> Response:
        if match is None:
            raise invalid_argument(f"Malformed request: {request.method} {request.target}")
        choice = _choice(match, model_name)
        if not model_name:
            raise invalid_argument("Missing model name in request.")
        context.check_model(model_name)
        if request.method == "GET":
            # Like the real server, match /METADATA too, but return the status for it.
            body = self._metadata(choice) if match[4] == "/metadata" else self._status(choice)
        elif match[4] == "predict":
            body = self._predict(choice, request, context)
        else:
            body = self._examples(choice, request, match[4], context)
        return Response(200, body)

    def _predict(self, choice: ModelChoice, request: Request, context: RequestContext) -> bytes:
        with ExitStack() as stack:
            with parsing(context) as limits:
                document, requested = parse_document(self._body(request, context), limits)
                servable = stack.enter_context(self._registry.acquire(choice))
                try:
                    dtypes = input_dtypes(servable.runtime.signatures, requested)
                except SignatureNotFoundError as error:
                    raise predict_json.signature_not_found(error.name) from None
                signature_name = requested or DEFAULT_SIGNATURE
                inputs, row_format = predict_json.decode_inputs(document, dtypes, signature_name)
            call = PredictCall(signature_name, inputs, check_method_name=self._check_method_names)
            outputs = predict(servable, call, context)
        context.charge(predict_response.response_size(outputs))
        return predict_response.encode_response(outputs, row_format=row_format)

    def _examples(self, choice: ModelChoice, request: Request, verb: str, context: RequestContext) -> bytes:
        with parsing(context) as limits:
            signature_name, examples = examples_json.decode_request(self._body(request, context), limits)
        call = ExamplesCall(signature_name, examples, self._check_method_names)
        with self._registry.acquire(choice) as servable:
            if verb == "classify":
                return examples_json.encode_classifications(*classify(servable, call, context))
            return examples_json.encode_regressions(regress(servable, call, context))

    def _body(self, request: Request, context: RequestContext) -> bytes:
        """Return the body, decompressed if it is gzipped; a body that is damaged or too large counts as empty."""
        if "gzip" not in request.headers.get("content-encoding", ""):
            return request.body
        limit = self._limits.unpacked_bytes
        try:
            body = unpack(request.body, wbits=_GZIP, limit=limit, before_step=partial(charge_unpacked, context))
        except zlib.error:
            return b""
        return body if len(body) <= limit else b""

    def _status(self, choice: ModelChoice) -> bytes:
        response = responses.make_status_response(self._registry.statuses(choice))
        return responses.encode_status(response)

    def _metadata(self, choice: ModelChoice) -> bytes:
        with self._registry.acquire(choice) as servable:
            response = responses.make_metadata_response(servable.name, servable.version, servable.signatures)
        return responses.encode_metadata(response)


def _error_response(error: StatusError) -> Response:
    return Response(400, b"") if isinstance(error, _VersionError) else error_response(error)


def _choice(match: re.Match[str], model_name: str) -> ModelChoice:
    version, label = match[2], match[3]
    number = parse_version(version) if version else None
    if version and number is None:
        raise _VersionError
    return ModelChoice(
        model_name,
        number,
        decode_name(label, errors="surrogateescape") if label is not None else None,
    )
