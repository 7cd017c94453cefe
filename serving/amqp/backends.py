"""What answers a worker's calls: a model in this process, or a model server that this one stands before."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

import grpc
from google.protobuf.message import DecodeError

from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.serving.runtimes import tensorflow_import as without_keras
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


class Backend(Protocol):
    """Calls of the gRPC API, by their name in `schema.METHODS`."""

    def call(self, name: str, request: bytes) -> bytes:
        """From a serialized request to a serialized response; from any thread.

        Raises:
            StatusError: a refusal; UNAVAILABLE where the same call may succeed later.
        """

    def close(self) -> None:
        """Give back what it holds; nothing may be running."""


class ModelServer:
    """A model server elsewhere, over gRPC; requests and responses pass through as they are.

    Args:
        endpoint: where it is.
        timeout_s: how long a call may take.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(endpoint.address, options=grpc_channel.channel_options([endpoint]))

    def call(self, name: str, request: bytes) -> bytes:
        """See Backend."""
        try:
            answer: bytes = self._channel.unary_unary(METHODS[name].path)(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise StatusError(Code(error.code().value[0]), error.details() or "") from error
        return answer

    def close(self) -> None:
        """See Backend."""
        self._channel.close()


class OwnModel:
    """A model in this process: its newest version, followed on the disk as a server does.

    Args:
        name: of the model.
        base_path: the folder that holds its numbered versions.
        timeout_s: how long a run may take.

    Raises:
        StatusError: it can't be loaded.
    """

    def __init__(self, name: str, base_path: Path, *, timeout_s: float) -> None:
        without_keras.import_tensorflow()  # which a worker before another server does without
        from savedmodel_bakery.serving.grpc.handlers import Handlers
        from savedmodel_bakery.serving.inference import warmup
        from savedmodel_bakery.serving.models.lifecycle import Lifecycle, LifecycleOptions
        from savedmodel_bakery.serving.models.loading import LoadOptions, load
        from savedmodel_bakery.serving.models.registry import Registry
        from savedmodel_bakery.serving.options.model_config import single_model

        registry = Registry()
        self._lifecycle = Lifecycle(
            registry, partial(load, options=LoadOptions(warm_up=warmup.replay)), LifecycleOptions(max_load_retries=0)
        )
        self._lifecycle.start(single_model(name, str(base_path.absolute())))
        handlers = Handlers(registry, packed=False, check_method_names=False, reload=self._lifecycle.reload)
        self._calls = handlers.calls()
        self._timeout_s = timeout_s

    def call(self, name: str, request: bytes) -> bytes:
        """See Backend."""
        rpc = self._calls[METHODS[name].path]
        try:
            decoded = rpc.decode(request)
        except DecodeError as error:
            kind = METHODS[name].request.DESCRIPTOR.full_name
            raise invalid_argument(f"{len(request)} bytes came that are no {kind}") from error
        return rpc.handle(decoded, self._timeout_s)

    def close(self) -> None:
        """See Backend."""
        self._lifecycle.stop()
