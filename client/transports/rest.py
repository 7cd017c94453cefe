"""Sends calls over REST. Must not import gRPC or protobuf; `wire.json` encodes the bodies."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import requests
from requests.auth import AuthBase
from urllib3.exceptions import InvalidHeader, NameResolutionError, ReadTimeoutError
from urllib3.util import Retry

from savedmodel_bakery.client.calls import Call, Classify, Metadata, ModelSpec, Predict, Regress, Status
from savedmodel_bakery.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.results import Prediction, read_status
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.connection_errors import (
    connecting_failed,
    deadline_exceeded,
    name_not_resolved,
)
from savedmodel_bakery.client.transports.retries import OVERLOADED, send_with_retries
from savedmodel_bakery.client.transports.transport import decoding_response, encoding_request, refused
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.status import Code

# The inverse of tensorflow_model_server's table. If several codes share an HTTP status, the most common one is used.
# 502 is a gateway's status for a server that is down. Any other status is UNKNOWN.
_CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    409: Code.ABORTED,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    500: Code.INTERNAL,
    501: Code.UNIMPLEMENTED,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}

_SUFFIXES = {Predict: ":predict", Classify: ":classify", Regress: ":regress", Metadata: "/metadata", Status: ""}

_PIECE_BYTES = 2**20
_MAX_BODY_BYTES = 2**31 - 1  # as over gRPC

# A gateway sends these without a body of this API.
_GATEWAY_STATUSES = (401, 403, 429, 502, 503, 504)


class _BearerToken(AuthBase):
    """Sends a token (RFC 6750). As a header of the session, an entry in ~/.netrc would replace it."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class RestTransport:
    """One session with one server; `timeout_s` limits the connecting, each wait for more, and the time of a body."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        [self._endpoint] = server.endpoints
        self._server = server
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = not self._endpoint.is_loopback
        if server.tls is not None:
            self._session.verify = True if server.tls.ca is None else os.fspath(server.tls.ca)
            if server.tls.cert is not None:
                cert = os.fspath(server.tls.cert)
                self._session.cert = (cert, cert if server.tls.key is None else os.fspath(server.tls.key))
        if server.token is not None:
            self._session.auth = _BearerToken(server.token)

    def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        return self.decode(call, send_with_retries(self._encode(call), timeout_s=self._timeout_s))

    def prepare(self, call: Call) -> Callable[[], bytes]:
        """Encode a call; see `PreparedTransport.prepare`."""
        send = self._encode(call)
        return lambda: send(self._timeout_s)

    def _encode(self, call: Call) -> Callable[[float], bytes]:
        """Encode a call and return the function that sends it once; its argument is a time limit in seconds."""
        with encoding_request():
            if isinstance(call, Predict):
                return self._prepare("POST", call, predict_json.encode_request(call.inputs, call.signature))
            if isinstance(call, Classify | Regress):
                return self._prepare("POST", call, examples_json.encode_request(call.examples, call.signature))
        return self._prepare("GET", call)

    def decode(self, call: Call, content: bytes) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        if isinstance(call, Predict):
            return _prediction(call, content)
        if isinstance(call, Classify):
            with decoding_response():
                return examples_json.decode_classifications(content)
        if isinstance(call, Regress):
            with decoding_response():
                return examples_json.decode_regressions(content)
        document = _document(content)
        if document is None:
            raise InvalidResponseError(f"the response of {self._url(call)}, {len(content)} bytes, is not a JSON object")
        return document if isinstance(call, Metadata) else read_status(document)

    def close(self) -> None:
        """Close the session's connections."""
        self._session.close()

    def _url(self, call: Call) -> str:
        scheme = "http" if self._server.tls is None else "https"
        return f"{scheme}://{self._endpoint.address}/v1/models/{_path(call.spec)}{_SUFFIXES[type(call)]}"

    def _prepare(self, method: str, call: Call, body: bytes | None = None) -> Callable[[float], bytes]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            request = self._session.prepare_request(
                requests.Request(method, self._url(call), data=body, headers=headers)
            )
        except requests.RequestException as exc:
            raise self._client_error(exc) from exc

        def send(timeout_s: float) -> bytes:
            try:
                response = self._session.send(request, timeout=timeout_s, allow_redirects=False, stream=True)
                content = self._read(response, timeout_s)
            except OSError as exc:  # also requests' plain OSError for a certificate file that was removed
                raise self._client_error(exc) from exc
            if response.status_code != requests.codes.ok:
                raise _refusal(response, content)
            return content

        return send

    def _read(self, response: requests.Response, timeout_s: float) -> bytes:
        """Return the body of a response, which may be endless."""
        deadline = time.monotonic() + timeout_s
        pieces: list[bytes] = []
        size = 0
        for piece in response.iter_content(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_BODY_BYTES or time.monotonic() > deadline:
                response.close()
                if size <= _MAX_BODY_BYTES:
                    raise deadline_exceeded([self._endpoint], timeout_s)
                raise InvalidResponseError(
                    f"the response of {self._endpoint.address} has more than {_MAX_BODY_BYTES} bytes"
                )
        return b"".join(pieces)

    def _client_error(self, exc: OSError) -> ClientError:
        # requests raises a ConnectionError for a timeout while it reads the rest of a body.
        timed_out = exc.args and isinstance(exc.args[0], ReadTimeoutError)
        if isinstance(exc, requests.ReadTimeout) or timed_out:
            return deadline_exceeded([self._endpoint], self._timeout_s)
        reason = getattr(exc.args[0], "reason", None) if exc.args else None  # of urllib3's MaxRetryError
        if isinstance(reason, NameResolutionError):
            return name_not_resolved([self._endpoint])
        if isinstance(exc, (requests.ConnectionError, requests.exceptions.InvalidURL)):
            return connecting_failed(self._server, str(reason or exc))
        if not isinstance(exc, requests.RequestException):
            return ConnectionFailedError(f"cannot connect to {self._endpoint.address} over REST: {exc}")
        return InvalidResponseError(f"{self._endpoint.address} sent an invalid HTTP response: {exc}")


def _prediction(call: Predict, content: bytes) -> Prediction:
    """Decode a `:predict` response. The REST API has no output filter, so outputs are dropped here."""
    with decoding_response():
        outputs = predict_json.decode_response(content, _output_dtypes(call))
    return Prediction(
        arrays={alias: outputs[alias] for alias in _filter(call.output_filter, outputs)},
        model=call.spec.name,
        version=call.spec.version,
        signature=call.signature,
    )


def _path(spec: ModelSpec) -> str:
    name = quote(spec.name, safe="")
    if spec.version is not None:
        return f"{name}/versions/{spec.version}"
    if spec.label is not None:
        return f"{name}/labels/{quote(spec.label, safe='')}"
    return name


def _document(content: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _refusal(response: requests.Response, content: bytes) -> ClientError:
    code = _CODES.get(response.status_code, Code.UNKNOWN)
    message = (_document(content) or {}).get("error")
    if not isinstance(message, str):
        content_type = response.headers.get("Content-Type", "no content type")
        message = (
            f"{response.url} responded HTTP {response.status_code} with {content_type}; "
            'a model server responds {"error": …}'
        )
        if response.status_code not in _GATEWAY_STATUSES:
            return InvalidResponseError(message)
    if code is Code.DEADLINE_EXCEEDED:
        return DeadlineExceededError(message)
    return refused(code, message, retry_after_s=_retry_after_s(response) if code in OVERLOADED else None)


def _retry_after_s(response: requests.Response) -> float | None:
    """Return the seconds of the header Retry-After (RFC 9110, section 10.2.3), which may be a date; None without it."""
    try:
        return Retry().parse_retry_after(response.headers.get("Retry-After", ""))
    except (InvalidHeader, ValueError):
        return None


def _output_dtypes(call: Predict) -> dict[str, DType]:
    """Return element types by alias; the JSON of a response does not contain them."""
    outputs = call.declared.outputs if call.declared else {}
    known = {alias: spec.dtype for alias, spec in outputs.items() if spec.dtype is not None}
    if not known or len(known) < len(outputs):
        raise InvalidResponseError(f'the metadata lack the output types of signature "{call.signature}"')
    return known


def _filter(output_filter: Sequence[str], outputs: Mapping[str, np.ndarray]) -> Sequence[str]:
    """Return the aliases to keep. The errors are those that a server sends over gRPC."""
    for place, alias in enumerate(output_filter):
        if alias not in outputs:
            names = ",".join(sorted(outputs))
            raise RequestRefusedError(
                Code.INVALID_ARGUMENT,
                f"output tensor alias not found in signature: {alias} Outputs expected to be in the set {{{names}}}.",
            )
        if alias in output_filter[:place]:
            raise RequestRefusedError(Code.INVALID_ARGUMENT, f"duplicate output tensor alias: {alias}")
    return output_filter or list(outputs)
