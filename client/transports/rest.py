"""Questions over REST. Must not know gRPC or protobuf; `wire` spells tensors and examples in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ReadTimeoutError
from urllib3.util import Retry

from savedmodel_bakery.client.calls import Classify, Metadata, ModelSpec, Predict, Question, Status
from savedmodel_bakery.client.errors import (
    ClientError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.results import Prediction, read_status
from savedmodel_bakery.client.transports.transport import (
    Endpoint,
    connection_failed,
    deadline_exceeded,
    decoding_answer,
    encoding_request,
)
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.status import Code

# tensorflow_model_server's table read backwards; where several codes share a status the commonest is meant.
# 502 is a gateway's word for a server that is away. Any other status is UNKNOWN.
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

_VERBS = {Predict: ":predict", Classify: ":classify", Metadata: "/metadata", Status: ""}

# As over gRPC: what met no server, or one that is away, is asked again, three times at most; nothing else is.
_RETRIES = Retry(
    connect=3, status=3, total=None, read=False, other=False, redirect=False,
    status_forcelist=[503], allowed_methods=None, backoff_factor=0.1, raise_on_status=False,
    respect_retry_after_header=False,
)  # fmt: skip


class RestTransport:
    """One session with one server; `timeout_s` limits connecting, and each wait for more of an answer.

    With `for_load` nothing is tried again.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float, for_load: bool = False) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.trust_env = not endpoint.is_loopback
        self._session.mount("http://", HTTPAdapter(max_retries=0 if for_load else _RETRIES))

    def ask(self, question: Question) -> Any:
        """Put a question; see `Transport.ask`."""
        return self.decode(question, self.prepare(question)())

    def prepare(self, question: Question) -> Callable[[], bytes]:
        """Write a question; see `Transport.prepare`."""
        url = self._url(question)
        if isinstance(question, Predict):
            with encoding_request():
                body = predict_json.encode_request(question.inputs, question.signature)
            return self._exchange("POST", url, body)
        if isinstance(question, Classify):
            with encoding_request():
                body = examples_json.encode_request(question.examples, question.signature)
            return self._exchange("POST", url, body)
        return self._exchange("GET", url)

    def decode(self, question: Question, content: bytes) -> Any:
        """Read an answer; see `Transport.decode`."""
        if isinstance(question, Predict):
            return _prediction(question, content)
        if isinstance(question, Classify):
            with decoding_answer():
                return examples_json.decode_response(content)
        document = _document(content)
        if document is None:
            raise InvalidResponseError(f"{self._url(question)} answered {len(content)} bytes that are no JSON object")
        return document if isinstance(question, Metadata) else read_status(document)

    def close(self) -> None:
        """Close the session's connections."""
        self._session.close()

    def _url(self, question: Question) -> str:
        return f"http://{self._endpoint.address}/v1/models/{_path(question.spec)}{_VERBS[type(question)]}"

    def _exchange(self, method: str, url: str, body: bytes | None = None) -> Callable[[], bytes]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            request = self._session.prepare_request(requests.Request(method, url, data=body, headers=headers))
        except requests.RequestException as exc:
            raise self._translate(exc) from exc

        def exchange() -> bytes:
            try:
                response = self._session.send(request, timeout=self._timeout_s, allow_redirects=False)
            except requests.RequestException as exc:
                raise self._translate(exc) from exc
            if response.status_code != requests.codes.ok:
                raise _refusal(response)
            return response.content

        return exchange

    def _translate(self, exc: requests.RequestException) -> ClientError:
        # A wait for the rest of a body that ran out is handed on as a ConnectionError.
        waited = exc.args and isinstance(exc.args[0], ReadTimeoutError)
        if isinstance(exc, requests.ReadTimeout) or waited:
            return deadline_exceeded([self._endpoint], self._timeout_s)
        if isinstance(exc, (requests.ConnectionError, requests.exceptions.InvalidURL)):
            return connection_failed([self._endpoint])
        return InvalidResponseError(f"{self._endpoint.address} gave no HTTP answer that can be read: {exc}")


def _prediction(question: Predict, content: bytes) -> Prediction:
    """What `:predict` answered; the API has no filter, so outputs are dropped here."""
    with decoding_answer():
        outputs = predict_json.decode_response(content, _output_dtypes(question))
    return Prediction(
        arrays={alias: outputs[alias] for alias in _checked(question.output_filter, outputs)},
        model=question.spec.name,
        version=question.spec.version,
        signature=question.signature,
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
        kind = response.headers.get("Content-Type", "no content type")
        return InvalidResponseError(
            f'{response.url} answered HTTP {response.status_code} with {kind}; a model server answers {{"error": …}}'
        )
    code = _CODES.get(response.status_code, Code.UNKNOWN)
    return DeadlineExceededError(message) if code is Code.DEADLINE_EXCEEDED else RequestRefusedError(code, message)


def _output_dtypes(question: Predict) -> dict[str, DType]:
    """Element types by alias, which the JSON of an answer doesn't tell."""
    outputs = question.declared.outputs if question.declared else {}
    known = {alias: spec.dtype for alias, spec in outputs.items() if spec.dtype is not None}
    if not known or len(known) < len(outputs):
        raise InvalidResponseError(f'the metadata do not say the output types of signature "{question.signature}"')
    return known


def _checked(output_filter: Sequence[str], outputs: Mapping[str, np.ndarray]) -> Sequence[str]:
    """The aliases to keep; refused in the words that servers have for it over gRPC."""
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
