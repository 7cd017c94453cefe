"""Sends calls over HTTP in the v2 protocol, with binary tensor data. Must not import gRPC; `wire.v2` encodes bodies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import v2_flows
from savedmodel_bakery.client.transports.failures import send_with_retries
from savedmodel_bakery.client.transports.http_session import HttpSession, read_error, read_json, read_object
from savedmodel_bakery.client.transports.transport import ServerTransport, decoding_response, encoding_request
from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire.v2 import http_decode, http_encode
from savedmodel_bakery.wire.v2.infer import BINARY_TENSOR_DATA

_SUFFIXES = {"ModelInfer": "/infer", "ModelMetadata": "", "ModelConfig": "/config", "ModelReady": "/ready"}


class _Content(NamedTuple):
    """The parts of a response that matter: its body, and the header `http_encode.HEADER_LENGTH`."""

    body: bytes
    header_length: str | None


class V2HttpTransport(ServerTransport):
    """One session with one server; for the time limit see `HttpSession`."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._http = HttpSession(server, timeout_s=timeout_s, read_error=_read_error, advice=v2_flows.NO_V2)
        self._extensions: list[Any] | None = None

    def close(self) -> None:
        """Close the session's connections."""
        self._http.close()

    def _exchange(self, call: Call) -> Generator[v2_flows.Request, Any, Any]:
        return v2_flows.exchange(call)

    def _prepare(self, request: v2_flows.Request, end_s: float) -> Callable[[float], _Content]:
        """The first inference needs the server's extensions: without `binary_tensor_data` tensors are sent as JSON."""
        headers = {"Content-Type": "application/json"}
        if request.call is not None:
            if self._extensions is None:
                self._extensions = self._request_extensions(end_s)
            with encoding_request():
                body = http_encode.encode_request(
                    request.call.inputs,
                    signature_name=v2_flows.signature_parameter(request.call),
                    outputs=request.call.output_filter,
                    binary=BINARY_TENSOR_DATA in self._extensions,
                )
            headers["Content-Type"] = body.content_type
            if body.header_length is not None:
                headers[http_encode.HEADER_LENGTH] = str(body.header_length)
            send = self._http.prepare("POST", _path(request), body.content, headers)
        elif request.method == "RepositoryIndex":
            send = self._http.prepare("POST", _path(request), b"{}", headers)
        else:
            send = self._http.prepare("GET", _path(request))

        def send_once(timeout_s: float) -> _Content:
            response = send(timeout_s)
            return _Content(response.content, response.headers.get(http_encode.HEADER_LENGTH))

        return send_once

    def _request_extensions(self, end_s: float) -> list[Any]:
        try:
            content = send_with_retries(self._http.prepare("GET", "/v2"), end_s=end_s).content
        except (RequestRefusedError, InvalidResponseError) as exc:  # such as a gateway that routes only /v2/models
            v2_flows.check_missing(exc)
            return []
        extensions = (read_object(content) or {}).get("extensions")
        return extensions if isinstance(extensions, list) else []

    def _decode(self, request: v2_flows.Request, content: _Content) -> Any:
        if request.method == "ModelInfer":
            with decoding_response():
                return http_decode.decode_response(content.body, content.header_length)
        document = read_json(content.body)
        if request.method == "ModelReady":
            return document if isinstance(document, dict) else {}  # the status is the result; the body may be empty
        expected, name = (list, "list") if request.method == "RepositoryIndex" else (dict, "object")
        if not isinstance(document, expected):
            url = self._http.url(_path(request))
            raise InvalidResponseError(f"the response of {url}, {len(content.body)} bytes, is not a JSON {name}")
        return document


def _path(request: v2_flows.Request) -> str:
    if request.method == "RepositoryIndex":
        return "/v2/repository/index"
    version = "" if request.spec.version is None else f"/versions/{request.spec.version}"
    return f"/v2/models/{quote(request.spec.name, safe='')}{version}{_SUFFIXES[request.method]}"


def _read_error(document: Mapping[str, Any]) -> str | None:
    """Return the message of an error: the protocol's `error`, or FastAPI's `detail`, which MLServer and KServe send."""
    detail = document.get("detail")
    if isinstance(detail, list):  # a body that is not valid
        return "; ".join(str(entry.get("msg")) for entry in detail if isinstance(entry, dict))
    return detail if isinstance(detail, str) else read_error(document)
