"""The standard health service (grpc.health.v1). Reports the state of the server, not of its models."""

from __future__ import annotations

from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.grpc.codec import Rpc
from savedmodel_bakery.serving.threads import CallThreads
from savedmodel_bakery.wire.status import Code, StatusError

# The names that tensorflow_model_server sets; the empty name is the whole process.
_SERVICES = ("", "ModelService", "PredictionService")
_SERVICE = "grpc.health.v1.Health"
_MAX_WATCHERS = 1000
_WATCH_THREADS = 4  # that receive requests to watch; a watcher itself needs none


class HealthService(health.HealthServicer):
    """Reports every service as SERVING until the server stops; ports open only after the first models are loaded."""

    def __init__(self) -> None:
        super().__init__(experimental_thread_pool=CallThreads(_WATCH_THREADS, "watch"))
        self._watchers: set[Any] = set()
        for name in _SERVICES:
            self.set(name, health_pb2.HealthCheckResponse.SERVING)

    def calls(self) -> dict[str, Rpc]:
        """Return the unary call by path."""
        return {f"/{_SERVICE}/Check": Rpc(health_pb2.HealthCheckRequest.FromString, self.check, is_public=True)}

    def watch_handler(self) -> grpc.GenericRpcHandler:
        """Return gRPC's handler of the call that streams."""
        watch = grpc.unary_stream_rpc_method_handler(
            self.Watch,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        return grpc.method_handlers_generic_handler(_SERVICE, {"Watch": watch})

    def check(self, request: Any, _: RequestContext) -> Any:
        """Return the state of a service; unknown names are NOT_FOUND, with the text of gRPC's own implementation."""
        if request.service not in _SERVICES:
            raise StatusError(Code.NOT_FOUND, "service name unknown")
        return self.Check(request, None)

    def Watch(self, request: Any, context: Any, send_response_callback: Any = None) -> Any:  # noqa: N802
        """Stream the states of a service until the caller or the server ends the call."""
        if len(self._watchers) >= _MAX_WATCHERS:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} calls watch already")
        self._watchers.add(context)
        context.add_callback(lambda: self._watchers.discard(context))
        return super().Watch(request, context, send_response_callback)

    def stop(self) -> None:
        """Report NOT_SERVING from now on and cancel all watchers, which would otherwise delay the shutdown."""
        self.enter_graceful_shutdown()
        for context in list(self._watchers):
            context.cancel()
