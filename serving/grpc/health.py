"""The standard health service (grpc.health.v1). Reports the state of the server, not of its models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2

# The names that tensorflow_model_server sets; the empty name is the whole process.
_SERVICES = ("", "ModelService", "PredictionService")


class HealthService(health.HealthServicer):
    """Reports every service as SERVING until the server stops; ports open only after the first models are loaded.

    Args:
        threads: that answer, so that runs of models never delay them.
    """

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        super().__init__()
        check: Any = partial(self._check)
        check.experimental_thread_pool = threads
        self.Check = check
        self._watchers: set[Any] = set()
        for name in _SERVICES:
            self.set(name, health_pb2.HealthCheckResponse.SERVING)

    def _check(self, request: Any, context: Any) -> Any:
        """Return the state of a service; unknown names are NOT_FOUND, with the text of gRPC's own implementation."""
        if request.service not in _SERVICES:
            context.abort(grpc.StatusCode.NOT_FOUND, "service name unknown")
        return super().Check(request, context)

    def Watch(self, request: Any, context: Any, send_response_callback: Any = None) -> Any:  # noqa: N802
        """Stream the states of a service until the caller or the server ends the call."""
        self._watchers.add(context)
        context.add_callback(lambda: self._watchers.discard(context))
        return super().Watch(request, context, send_response_callback)

    def stop(self) -> None:
        """Report NOT_SERVING from now on and cancel all watchers, which would otherwise delay the shutdown."""
        self.enter_graceful_shutdown()
        for context in list(self._watchers):
            context.cancel()
