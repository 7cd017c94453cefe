"""Sends calls over REST. Must not import gRPC or protobuf; `wire.json` encodes the bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NameResolutionError, ReadTimeoutError
from urllib3.util import Retry

from savedmodel_bakery.client.calls import Call, Classify, Metadata, ModelSpec, Predict, Status
from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.errors import (
    ClientError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.results import Prediction, read_status
from savedmodel_bakery.client.transports.transport import (
    connection_failed,
    deadline_exceeded,
    decoding_response,
    encoding_request,
    name_not_resolved,
)
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

_SUFFIXES = {Predict: ":predict", Classify: ":classify", Metadata: "/metadata", Status: ""}

# As over gRPC: a request that cannot reach a server, or gets 503, is retried up to three times; nothing else is.
_RETRIES = Retry(
    connect=3, status=3, total=None, read=False, other=False, redirect=False,
    status_forcelist=[503], allowed_methods=None, backoff_factor=0.1, raise_on_status=False,
    respect_retry_after_header=False,
)  # fmt: skip


class RestTransport:
    """One session with one server; `timeout_s` limits the connecting and each wait for more of a response.

    With `for_load` it never retries.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, for_load: bool = False) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = not endpoint.is_loopback
        self._session.mount("http://", HTTPAdapter(max_retries=0 if for_load else _RETRIES))

    def send(self, call: Call) -> Any:
        """Send a call; see `Transport.send`."""
        return self.decode(call, self.prepare(call)())

    def prepare(self, call: Call) -> Callable[[], bytes]:
        """Encode a call; see `PreparedTransport.prepare`."""
        with encoding_request():
            if isinstance(call, Predict):
                return self._prepare("POST", call, predict_json.encode_request(call.inputs, call.signature))
            if isinstance(call, Classify):
                return self._prepare("POST", call, examples_json.encode_request(call.examples, call.signature))
        return self._prepare("GET", call)

    def decode(self, call: Call, content: bytes) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        if isinstance(call, Predict):
            return _prediction(call, content)
        if isinstance(call, Classify):
            with decoding_response():
                return examples_json.decode_response(content)
        document = _document(content)
        if document is None:
            raise InvalidResponseError(f"the response of {self._url(call)}, {len(content)} bytes, is not a JSON object")
        return document if isinstance(call, Metadata) else read_status(document)

    def close(self) -> None:
        """Close the session's connections."""
        self._session.close()

    def _url(self, call: Call) -> str:
        return f"http://{self._endpoint.address}/v1/models/{_path(call.spec)}{_SUFFIXES[type(call)]}"

    def _prepare(self, method: str, call: Call, body: bytes | None = None) -> Callable[[], bytes]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            request = self._session.prepare_request(
                requests.Request(method, self._url(call), data=body, headers=headers)
            )
        except requests.RequestException as exc:
            raise self._client_error(exc) from exc

        def send() -> bytes:
            try:
                response = self._session.send(request, timeout=self._timeout_s, allow_redirects=False)
            except requests.RequestException as exc:
                raise self._client_error(exc) from exc
            if response.status_code != requests.codes.ok:
                raise _refusal(response)
            return response.content

        return send

    def _client_error(self, exc: requests.RequestException) -> ClientError:
        # requests raises a ConnectionError for a timeout while it reads the rest of a body.
        timed_out = exc.args and isinstance(exc.args[0], ReadTimeoutError)
        if isinstance(exc, requests.ReadTimeout) or timed_out:
            return deadline_exceeded([self._endpoint], self._timeout_s)
        if exc.args and isinstance(getattr(exc.args[0], "reason", None), NameResolutionError):
            return name_not_resolved([self._endpoint])
        if isinstance(exc, (requests.ConnectionError, requests.exceptions.InvalidURL)):
            return connection_failed([self._endpoint])
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


def _refusal(response: requests.Response) -> ClientError:
    message = (_document(response.content) or {}).get("error")
    if not isinstance(message, str):
        content_type = response.headers.get("Content-Type", "no content type")
        return InvalidResponseError(
            f"{response.url} responded HTTP {response.status_code} with {content_type}; "
            'a model server responds {"error": …}'
        )
    code = _CODES.get(response.status_code, Code.UNKNOWN)
    return DeadlineExceededError(message) if code is Code.DEADLINE_EXCEEDED else RequestRefusedError(code, message)


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
