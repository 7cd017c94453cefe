"""Sends calls over REST. Must not import gRPC or protobuf; `wire.json` encodes the bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.client.calls import Call, Classify, Metadata, Predict, Regress, Status, read_status
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.http_session import HttpSession, read_object
from savedmodel_bakery.client.transports.transport import (
    ServerTransport,
    decoding_response,
    encoding_request,
    filter_outputs,
)
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.json import examples as examples_json
from savedmodel_bakery.wire.json import predict as predict_json
from savedmodel_bakery.wire.json import predict_response

_SUFFIXES = {Predict: ":predict", Classify: ":classify", Regress: ":regress", Metadata: "/metadata", Status: ""}


class RestTransport(ServerTransport):
    """One session with one server; for the time limit see `HttpSession`."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._http = HttpSession(server, timeout_s=timeout_s)

    def close(self) -> None:
        """Close the session's connections."""
        self._http.close()

    def _prepare(self, call: Call, _end_s: float) -> Callable[[float], bytes]:
        body = None
        with encoding_request():
            if isinstance(call, Predict):
                body = predict_json.encode_request(call.inputs, call.signature)
            elif isinstance(call, Classify | Regress):
                body = examples_json.encode_request(call.examples, call.signature)
        if body is None:
            send = self._http.prepare("GET", _path(call))
        else:
            send = self._http.prepare("POST", _path(call), body, {"Content-Type": "application/json"})
        return lambda timeout_s: send(timeout_s).content

    def _decode(self, call: Call, content: bytes) -> Any:
        with decoding_response():
            if isinstance(call, Predict):
                outputs = predict_response.decode_response(content, _output_dtypes(call))
                arrays = filter_outputs(outputs, call.output_filter)  # the REST API has no output filter
                return Prediction(arrays, call.spec.name, call.spec.version, call.signature)
            if isinstance(call, Classify):
                return examples_json.decode_classifications(content)
            if isinstance(call, Regress):
                return examples_json.decode_regressions(content)
        document = read_object(content)
        if document is None:
            url = self._http.url(_path(call))
            raise InvalidResponseError(f"the response of {url}, {len(content)} bytes, is not a JSON object")
        return document if isinstance(call, Metadata) else read_status(document)


def _path(call: Call) -> str:
    path = f"/v1/models/{quote(call.spec.name, safe='')}"
    if call.spec.version is not None:
        path += f"/versions/{call.spec.version}"
    if call.spec.label is not None:
        path += f"/labels/{quote(call.spec.label, safe='')}"
    return path + _SUFFIXES[type(call)]


def _output_dtypes(call: Predict) -> dict[str, DType]:
    """Return element types by alias; the JSON of a response does not contain them."""
    outputs = call.declared.outputs if call.declared else {}
    known = {alias: spec.dtype for alias, spec in outputs.items() if spec.dtype is not None}
    if not known or len(known) < len(outputs):
        raise InvalidResponseError(f'the metadata lack the output types of signature "{call.signature}"')
    return known
