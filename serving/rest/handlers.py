"""The URLs of TensorFlow Serving's REST API, from an HTTP request to an HTTP answer, without a socket."""

from __future__ import annotations

import logging
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from savedmodel_bakery.serving import incident, metrics
from savedmodel_bakery.serving.inference import examples, model, predict
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.rest.errors import HTTP_STATUS
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.json import examples as example_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import status as status_json
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor

logger = logging.getLogger(__name__)

_CHARACTER = r"[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}"
# RFC 3986, 3
_TARGET = re.compile(rf"(?:{_CHARACTER})*(?:\?(?:{_CHARACTER}|\?)*)?(?:#(?:{_CHARACTER}|\?)*)?", re.ASCII)
_NAME, _CHOICE = r"/([^/:]+)", r"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_CALL_URL = re.compile(rf"/v1/models{_NAME}{_CHOICE}:(?-i:(classify|regress|predict))", re.IGNORECASE)
_MODEL_URL = re.compile(rf"/v1/models(?:{_NAME})?{_CHOICE}(/metadata)?", re.IGNORECASE)
KNOWN_METHODS = ("GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")

CORS_HEADERS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "POST, GET",
    "Access-Control-Allow-Headers": "Content-Type",
}
_MAX_UNPACKED_BYTES = 100 * 2**20
_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = len(str(_MAX_VERSION))


@dataclass(frozen=True)
class Request:
    """One HTTP request.

    Attributes:
        method: as sent.
        target: path, query and fragment, as sent but for scheme and host.
        headers: names in lower case.
        body: as sent.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class _VersionError(Exception):
    """A version is no signed 64-bit number; the real server answers that without a word."""


class Handlers:
    """Every URL that is served.

    Args:
        registry: where servables are found.
        timeout_s: limit of a model run; None is none.
        cors: put CORS headers on answers.
        check_method_names: refuse signatures that were exported for another method.
        metrics_path: where Prometheus finds metrics; None is nowhere.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        timeout_s: float | None,
        cors: bool,
        check_method_names: bool,
        metrics_path: str | None = None,
    ) -> None:
        self._registry = registry
        self._check_method_names = check_method_names
        self._timeout_s = timeout_s
        self._metrics_path = metrics_path
        self._headers = CORS_HEADERS if cors else {}

    def answer(self, request: Request) -> Answer:
        """Answer a request; every mistake becomes an answer too."""
        if request.method not in KNOWN_METHODS:
            return page(501, "Not Implemented")
        if not _TARGET.fullmatch(request.target):
            return page(400, "Bad Request")
        path = re.split("[?#]", request.target)[0]
        if path == self._metrics_path:
            if request.target != path:
                return Answer(400, f"Unexpected path: {request.target}. Should be {path}".encode(), "text/plain")
            return Answer(200, metrics.page(), metrics.CONTENT_TYPE)
        if not path.lower().startswith("/v1/"):
            return page(404, "Not Found")
        if request.method == "OPTIONS":
            origin = request.headers.get("origin", "")
            status = 200 if "http://" in origin or "https://" in origin else 400
            return Answer(status, b"", "text/html; charset=ISO-8859-1", self._headers)
        started = time.perf_counter()
        match = self._match(request)
        code, answer = self._answer_api(request, match)
        metrics.count_request(_model_name(match), _verb(match), "REST", code, time.perf_counter() - started)
        return answer

    @staticmethod
    def _match(request: Request) -> re.Match[str] | None:
        """The parts of a URL that goes with the method; None where none does."""
        if request.method == "POST":
            return _CALL_URL.fullmatch(request.target)
        return _MODEL_URL.fullmatch(request.target) if request.method == "GET" else None

    def _answer_api(self, request: Request, match: re.Match[str] | None) -> tuple[Code, Answer]:
        try:
            return Code.OK, Answer(200, self._json(request, match), headers=self._headers)
        except _VersionError:
            return Code.INVALID_ARGUMENT, Answer(400, b"", headers=self._headers)
        except StatusError as error:
            refusal = error
        except Exception:
            refusal = incident.report(logger, f"{request.method} {request.target}")
        body = status_json.encode_error(refusal.message)
        return refusal.code, Answer(HTTP_STATUS[refusal.code], body, headers=self._headers)

    def _json(self, request: Request, match: re.Match[str] | None) -> bytes:
        if match is None:
            raise invalid_argument(f"Malformed request: {request.method} {request.target}")
        choice = _choice(match)
        if not choice.name:
            raise invalid_argument("Missing model name in request.")
        if request.method == "GET":
            # Capitals match, but only the lower-case word asks for metadata: so it is on the real server.
            return self._metadata(choice) if match[4] == "/metadata" else self._status(choice)
        body = _unpacked(request)
        return self._predict(choice, body) if match[4] == "predict" else self._examples(choice, body, match[4])

    def _predict(self, choice: ModelChoice, body: bytes) -> bytes:
        parsed = predict_json.parse_predict_body(body)
        signature_name = parsed.signature_name or predict.DEFAULT_SIGNATURE
        with self._registry.acquire(choice) as servable:
            signature = _find_signature(servable, signature_name)
            infos = {alias: dtypes.of_number(info.dtype) for alias, info in signature.inputs.items()}
            arrays, row_format = predict_json.decode_inputs(parsed.document, infos, signature_name)
            if self._check_method_names:
                predict.check_method_name(signature)
            sent = {alias: Tensor(array, infos[alias]) for alias, array in arrays.items()}
            feeds = predict.read_inputs(signature, sent, _tensor)
            aliases = sorted(signature.outputs)
            outputs = predict.run(servable, signature, feeds, aliases, self._timeout_s)
        return predict_json.encode_outputs(
            {alias: tensor.array for alias, tensor in outputs.items()},
            {alias: tensor.dtype for alias, tensor in outputs.items()},
            row_format,
        )

    def _examples(self, choice: ModelChoice, body: bytes, verb: str) -> bytes:
        signature_name, serialized = example_json.parse_examples_body(body, verb)
        method = examples.METHODS[f"tensorflow/serving/{verb}"]
        with self._registry.acquire(choice) as servable:
            task = examples.Task(examples.find_signature(servable, signature_name), method)
            (result,) = examples.run(
                servable,
                [task],
                serialized,
                timeout_s=self._timeout_s,
                check_method_names=self._check_method_names,
            )
        if method is examples.Classify:
            return example_json.encode_classifications(*result)
        return example_json.encode_regressions(result)

    def _status(self, choice: ModelChoice) -> bytes:
        return status_json.encode_status(model.status(self._registry, choice))

    def _metadata(self, choice: ModelChoice) -> bytes:
        with self._registry.acquire(choice) as servable:
            return status_json.encode_metadata(model.metadata(servable))


def _model_name(match: re.Match[str] | None) -> str:
    # Names that are no UTF-8 are names that no model has.
    return unquote(match[1], errors="surrogateescape") if match and match[1] else ""


def _verb(match: re.Match[str] | None) -> str:
    return match[4] if match and match.re is _CALL_URL else ""


def _choice(match: re.Match[str]) -> ModelChoice:
    _, version, label, _ = match.groups()
    digits = version and (version.lstrip("0") or "0")  # int() refuses thousands of them
    if digits and (len(digits) > _MAX_DIGITS or int(digits) > _MAX_VERSION):
        raise _VersionError
    return ModelChoice(
        _model_name(match),
        int(digits) if digits else None,
        unquote(label, errors="surrogateescape") if label is not None else None,
    )


def _tensor(sent: Any) -> Tensor:
    """What was sent, or the default of a signature, which is a TensorProto."""
    return sent if isinstance(sent, Tensor) else decode_tensor(sent)


def _find_signature(servable: Servable, name: str) -> Any:
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
    if not signature.inputs:
        raise invalid_argument(f"Failed to get input map for signature: {name}")
    return signature


def _unpacked(request: Request) -> bytes:
    """The body; one that says it is gzipped but doesn't unpack, or unpacks to too much, counts as empty."""
    if "gzip" not in request.headers.get("content-encoding", ""):
        return request.body
    decompressor = zlib.decompressobj(wbits=31)
    try:
        body = decompressor.decompress(request.body, _MAX_UNPACKED_BYTES + 1)
    except zlib.error:
        return b""
    return body if decompressor.eof and len(body) <= _MAX_UNPACKED_BYTES else b""


def page(status: int, title: str) -> Answer:
    """A small HTML page, as the real server sends where it has no JSON."""
    body = f"<HTML><HEAD>\n<TITLE>{status} {title}</TITLE>\n</HEAD><BODY>\n<H1>{title}</H1>\n</BODY></HTML>\n"
    return Answer(status, body.encode(), "text/html")
