"""Sends calls over HTTP in the v2 protocol, with binary tensor data. Must not import gRPC; `wire.v2` encodes bodies."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from savedmodel_bakery.client.calls import Call, ModelSpec, Predict
from savedmodel_bakery.client.flow_runners import run_flow
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import v2_flows
from savedmodel_bakery.client.transports.http_session import (
    HttpResponse,
    HttpSession,
    read_error,
    read_json,
    read_object,
)
from savedmodel_bakery.client.transports.retries import remaining_s, send_with_retries
from savedmodel_bakery.client.transports.transport import decoding_response, encoding_request
from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.v2 import http_decode, http_encode
from savedmodel_bakery.wire.v2.infer import BINARY_TENSOR_DATA, InferResponse

_SUFFIXES = {v2_flows.ModelMetadata: "", v2_flows.ModelConfig: "/config", v2_flows.ModelReady: "/ready"}


class _Content(NamedTuple):
    """The parts of a response that matter: its body, and the header `http_encode.HEADER_LENGTH`."""

    body: bytes
    header_length: str | None


class V2HttpTransport:
    """One session with one server; for the time limit see `HttpSession`."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._http = HttpSession(server, timeout_s=timeout_s, read_error=_read_error, advice=v2_flows.NO_V2)
        self._extensions: list[Any] | None = None

    def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        end_s = time.monotonic() + self._timeout_s

        def send(request: v2_flows.Request) -> Any:
            send_once = self._encode(request, end_s)
            return self._decode(request, send_with_retries(send_once, timeout_s=remaining_s(end_s)))

        return run_flow(v2_flows.exchange(call), send)

    def prepare(self, call: Call) -> Callable[[], Any]:
        """Encode a call; see `PreparedTransport.prepare`. Only Predict is a single request."""
        if not isinstance(call, Predict):
            return lambda: self.send(call)
        send = self._encode(v2_flows.start(call), time.monotonic() + self._timeout_s)
        return lambda: send(self._timeout_s)

    def decode(self, call: Call, content: Any) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        return v2_flows.read_prediction(call, _infer_response(content)) if isinstance(call, Predict) else content

    def close(self) -> None:
        """Close the session's connections."""
        self._http.close()

    def _encode(self, request: v2_flows.Request, end_s: float) -> Callable[[float], _Content]:
        """Encode a request and return the function that sends it once; its argument is a time limit in seconds.

        The first inference needs the extensions of the server, which are requested until `end_s` of the monotonic
        clock: without `binary_tensor_data`, tensors are sent as JSON.
        """
        headers = {"Content-Type": "application/json"}
        if isinstance(request, v2_flows.Infer):
            if self._extensions is None:
                self._extensions = self._request_extensions(end_s)
            with encoding_request():
                body = http_encode.encode_request(
                    request.call.inputs,
                    signature_name=request.signature_name,
                    outputs=request.call.output_filter,
                    binary=BINARY_TENSOR_DATA in self._extensions,
                )
            headers["Content-Type"] = body.content_type
            if body.header_length is not None:
                headers[http_encode.HEADER_LENGTH] = str(body.header_length)
            send = self._http.prepare("POST", _path(request), body.content, headers)
        elif isinstance(request, v2_flows.RepositoryIndex):
            send = self._http.prepare("POST", _path(request), b"{}", headers)
        else:
            send = self._http.prepare("GET", _path(request))
        return lambda timeout_s: _read(send(timeout_s))

    def _request_extensions(self, end_s: float) -> list[Any]:
        try:
            content = send_with_retries(self._http.prepare("GET", "/v2"), timeout_s=remaining_s(end_s)).content
        except (RequestRefusedError, InvalidResponseError) as exc:  # such as a gateway that routes only /v2/models
            v2_flows.check_missing(exc)
            return []
        extensions = (read_object(content) or {}).get("extensions")
        return extensions if isinstance(extensions, list) else []

    def _decode(self, request: v2_flows.Request, content: _Content) -> Any:
        if isinstance(request, v2_flows.Infer):
            return _infer_response(content)
        document = read_json(content.body)
        if isinstance(request, v2_flows.ModelReady):
            return document if isinstance(document, dict) else {}  # the status is the result; the body may be empty
        expected, name = (list, "list") if isinstance(request, v2_flows.RepositoryIndex) else (dict, "object")
        if not isinstance(document, expected):
            url = self._http.url(_path(request))
            raise InvalidResponseError(f"the response of {url}, {len(content.body)} bytes, is not a JSON {name}")
        return document


def _read(response: HttpResponse) -> _Content:
    return _Content(response.content, response.headers.get(http_encode.HEADER_LENGTH))


def _infer_response(content: _Content) -> InferResponse:
    with decoding_response():
        return http_decode.decode_response(content.body, content.header_length)


def _path(request: v2_flows.Request) -> str:
    if isinstance(request, v2_flows.RepositoryIndex):
        return "/v2/repository/index"
    if isinstance(request, v2_flows.Infer):
        return f"{_model_path(request.call.spec)}/infer"
    return f"{_model_path(request.spec)}{_SUFFIXES[type(request)]}"


def _model_path(spec: ModelSpec) -> str:
    version = "" if spec.version is None else f"/versions/{spec.version}"
    return f"/v2/models/{quote(spec.name, safe='')}{version}"


def _read_error(document: Mapping[str, Any]) -> str | None:
    """Return the message of an error: the protocol's `error`, or FastAPI's `detail`, which MLServer and KServe send."""
    detail = document.get("detail")
    if isinstance(detail, list):  # a body that is not valid
        return "; ".join(str(entry.get("msg")) for entry in detail if isinstance(entry, dict))
    return detail if isinstance(detail, str) else read_error(document)
