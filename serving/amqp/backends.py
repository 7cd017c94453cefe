"""What runs a worker's calls: a model in this process (`local_model`), or a model server elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.client.transports.retries import pause_after
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.amqp.codec import OtherCall, Predict, Prediction
from savedmodel_bakery.serving.inference.predict import input_dtypes
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.messages import SIGNATURE_FIELD, ModelSpec, TensorMap, read_spec, write_spec
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError

_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_HEALTH_TIMEOUT_S = 5.0


class Backend(Protocol):
    """Runs calls, from any thread. All methods raise StatusError; see `errors.is_temporary`."""

    def predict(self, call: Predict, context: RequestContext) -> Prediction:
        """Run a signature on tensors."""

    def input_dtypes(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, DType]:
        """Return the element types of a signature's inputs, by alias; see `inference.predict.input_dtypes`."""

    def call(self, call: OtherCall, context: RequestContext) -> bytes:
        """Run another method and return its serialized response."""

    def check(self) -> StatusError | None:
        """Return why calls cannot reach the model, None if they can; blocks for some seconds at most."""

    def close(self) -> None:
        """Release all resources; no call may be running."""


class RemoteServer:
    """A model server elsewhere, over gRPC.

    Args:
        server: its address, TLS and token.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._metadata = grpc_channel.call_metadata(server)
        self._channel = grpc_channel.create_channel(server)

    def predict(self, call: Predict, context: RequestContext) -> Prediction:
        """See Backend."""
        content = self._call("Predict", _encode_request(call) if call.content is None else call.content, context)
        response = parse_message(schema.PredictResponse, "outputs", content)
        outputs = TensorMap(response.message.outputs, response.attachments)
        return Prediction(read_spec(response.message.model_spec), outputs, None if call.content is None else content)

    def input_dtypes(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, DType]:
        """See Backend."""
        request = schema.GetModelMetadataRequest(metadata_field=[SIGNATURE_FIELD])
        write_spec(request.model_spec, spec)
        content = self._call("GetModelMetadata", request.SerializeToString(), context)
        metadata = schema.GetModelMetadataResponse.FromString(content).metadata[SIGNATURE_FIELD]
        signatures = schema.SignatureDefMap.FromString(metadata.value).signature_def
        return input_dtypes(signatures, spec.signature_name)

    def call(self, call: OtherCall, context: RequestContext) -> bytes:
        """See Backend."""
        return self._call(call.method, call.content, context)

    def check(self) -> StatusError | None:
        """Return why the server does not answer a health check (grpc.health.v1.Health).

        UNIMPLEMENTED is an answer too: the server has no such service.
        """
        try:
            self._send(_HEALTH_CHECK, b"", _HEALTH_TIMEOUT_S)
        except StatusError as error:
            return error if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) else None
        return None

    def close(self) -> None:
        """See Backend."""
        self._channel.close()

    def _call(self, method: str, content: bytes, context: RequestContext) -> bytes:
        return self._send(METHODS[method].path, content, context.remaining_s())

    def _send(self, path: str, content: bytes, timeout_s: float | None) -> bytes:
        with grpc_channel.call_span(path, self._server):
            metadata = (*self._metadata, *tracing.headers().items())
            try:
                response: bytes = self._channel.unary_unary(path)(content, timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as error:
                code = Code(error.code().value[0])
                pause_s = pause_after(error.trailing_metadata() or (), code)
                raise StatusError(code, error.details() or "", retry_after_s=pause_s) from error
            return response


def _encode_request(call: Predict) -> bytes:
    request = TensorMessage(schema.PredictRequest(output_filter=call.output_filter), "inputs")
    write_spec(request.message.model_spec, call.spec)
    for alias, (array, dtype, shape) in call.inputs.items():
        request.add(alias, array, packed=True, dtype=dtype, shape=shape)
    return request.SerializeToString()
