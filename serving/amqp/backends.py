"""What runs a worker's calls: a model in this process (`serving.loaded_model`), or a model server elsewhere.

Calls are held back while a server is unreachable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports.failures import pause_after
from savedmodel_bakery.client.transports.grpc import call_metadata, call_span, create_channel
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.amqp.publisher import growing_pauses
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage, parse_message
from savedmodel_bakery.wire.messages import (
    SIGNATURE_FIELD,
    ModelSpec,
    Prediction,
    PredictRequest,
    TensorMap,
    read_spec,
    write_spec,
)
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError

_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_HEALTH_TIMEOUT_S = 5.0
_MAX_PAUSE_S = 5.0

logger = logging.getLogger(__name__)


class Backend(Protocol):
    """Runs calls, from any thread: a `LoadedModel` in this process, or a `RemoteServer`."""

    def call(self, method: str, content: bytes, context: RequestContext) -> bytes:
        """Run a method of `schema.METHODS` on its serialized request; raises StatusError, see `codec.is_temporary`."""

    def predict(self, request: PredictRequest, context: RequestContext) -> Prediction:
        """Run a Predict whose inputs are in no message; raises StatusError as `call` does."""

    def signatures(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, Any]:
        """Return the SignatureDefs of a model, by name; raises StatusError as `call` does."""

    def check(self) -> StatusError | None:
        """Return why calls cannot reach the model, None if they can; blocks for some seconds at most."""

    def close(self) -> None:
        """Release all resources; no call may be running."""


class RemoteServer:
    """A model server elsewhere, over gRPC; see Backend."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._metadata = call_metadata(server)
        self._channel = create_channel(server)

    def call(self, method: str, content: bytes, context: RequestContext) -> bytes:
        """See Backend."""
        return self._send(METHODS[method].path, content, context.remaining_s())

    def predict(self, request: PredictRequest, context: RequestContext) -> Prediction:
        """See Backend."""
        message = TensorMessage(schema.PredictRequest(output_filter=request.output_filter), "inputs")
        if request.spec:
            write_spec(message.message.model_spec, request.spec)
        for alias, (array, dtype, shape) in request.inputs.items():
            message.add(alias, array, packed=True, dtype=dtype, shape=shape)
        content = self.call("Predict", message.SerializeToString(), context)
        response = parse_message(schema.PredictResponse, "outputs", content)
        outputs = dict(TensorMap(response.message.outputs, response.attachments))
        return Prediction(read_spec(response.message.model_spec), outputs)

    def signatures(self, spec: ModelSpec, context: RequestContext) -> Mapping[str, Any]:
        """See Backend."""
        request = schema.GetModelMetadataRequest(metadata_field=[SIGNATURE_FIELD])
        write_spec(request.model_spec, spec._replace(signature_name=""))
        content = self.call("GetModelMetadata", request.SerializeToString(), context)
        metadata = schema.GetModelMetadataResponse.FromString(content).metadata[SIGNATURE_FIELD]
        signatures: Mapping[str, Any] = schema.SignatureDefMap.FromString(metadata.value).signature_def
        return signatures

    def check(self) -> StatusError | None:
        """Return why the server answers no health check; UNIMPLEMENTED is an answer too: it has no such service."""
        try:
            self._send(_HEALTH_CHECK, b"", _HEALTH_TIMEOUT_S)
        except StatusError as error:
            return error if error.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED) else None
        return None

    def close(self) -> None:
        """See Backend."""
        self._channel.close()

    def _send(self, path: str, content: bytes, timeout_s: float | None) -> bytes:
        with call_span(path, self._server):
            metadata = (*self._metadata, *tracing.headers().items())
            try:
                response: bytes = self._channel.unary_unary(path)(content, timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as error:
                code = Code(error.code().value[0])
                pause_s = pause_after(error.trailing_metadata() or (), code)
                raise StatusError(code, error.details() or "", retry_after_s=pause_s) from error
            return response


class Availability:
    """Whether the backend can be reached. It is checked before the first call, and after each call that failed."""

    def __init__(self, check: Callable[[], StatusError | None], threads: ThreadPoolExecutor) -> None:
        self._check = check
        self._threads = threads
        self._is_checked = False
        self._checking = asyncio.Lock()

    def doubt(self) -> None:
        """Check before the next call."""
        self._is_checked = False

    async def wait(self) -> None:
        """Return when the backend is reachable."""
        async with self._checking:
            pauses = growing_pauses(_MAX_PAUSE_S)
            while not self._is_checked:
                self._is_checked = True  # unless a running call fails meanwhile
                error = await asyncio.get_running_loop().run_in_executor(self._threads, self._check)
                if error:
                    self._is_checked = False
                    pause_s = next(pauses)
                    logger.warning("the model server is unreachable: %s; checking again in %.1f s", error.text, pause_s)
                    await asyncio.sleep(pause_s)
