"""The standard health service (grpc.health.v1). Reports the state of the server, not of its models.

The service of the package grpcio-health-checking keeps a lock while it sends, so one watcher who does not read would
block all checks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import SMALL_BYTES
from savedmodel_bakery.serving.grpc.codec import check_public_size, unpack
from savedmodel_bakery.serving.grpc.errors import STATUS_CODES
from savedmodel_bakery.serving.rpc import Rpc
from savedmodel_bakery.serving.threads import CallThreads
from savedmodel_bakery.wire.status import Code, StatusError

# The names that tensorflow_model_server sets; the empty name is the whole process.
_SERVICES = ("", "ModelService", "PredictionService")
_SERVICE = "grpc.health.v1.Health"
_MAX_WATCHERS = 1000
_REJECTING_THREADS = 8  # beside those of the watchers
_SENDING_S = 0.5  # for the last state

_State = health_pb2.HealthCheckResponse


class HealthService:
    """Reports every service as SERVING until the server stops; ports open only after the first models are loaded.

    Args:
        receive: returns the message of a call, or None if it ends without one, from its messages and gRPC's context.
    """

    def __init__(self, receive: Callable[[Iterator[bytes], Any], bytes | None]) -> None:
        self._receive = receive
        self._threads = CallThreads(_MAX_WATCHERS + _REJECTING_THREADS, "watch")
        self._watchers: dict[Any, threading.Event] = {}  # by call; the event ends its wait
        self._is_stopping = False

    def calls(self) -> dict[str, Rpc]:
        """Return the unary call by path."""
        return {f"/{_SERVICE}/Check": Rpc(health_pb2.HealthCheckRequest.FromString, self.check, is_public=True)}

    def watch_handler(self) -> grpc.GenericRpcHandler:
        """Return gRPC's handler of the call that streams."""
        behaviour: Any = partial(self.watch)
        behaviour.experimental_thread_pool = self._threads
        watch = grpc.stream_stream_rpc_method_handler(behaviour, response_serializer=_State.SerializeToString)
        return grpc.method_handlers_generic_handler(_SERVICE, {"Watch": watch})

    def check(self, request: Any, _: RequestContext) -> Any:
        """Return the state of a service; unknown names are NOT_FOUND, with the text of gRPC's own implementation."""
        if request.service not in _SERVICES:
            raise StatusError(Code.NOT_FOUND, "service name unknown")
        return self._state(request.service)

    def watch(self, messages: Iterator[bytes], call: Any) -> Iterator[Any]:
        """Yield the state of a service, and when the server stops, its new state. Ends with the call."""
        if len(self._watchers) >= _MAX_WATCHERS:
            call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} calls watch already")
        is_over = threading.Event()
        self._watchers[call] = is_over
        try:
            call.add_callback(is_over.set)
            message = self._receive(messages, call)
            if message is None:
                return
            service = _service(message, call)
            del message  # a call may last for days
            yield self._state(service)
            if not self._is_stopping:
                is_over.wait()
                yield self._state(service)
        finally:
            del self._watchers[call]

    def stop(self) -> None:
        """Report NOT_SERVING from now on, and end the calls of all watchers, which would otherwise delay the end."""
        self._is_stopping = True
        if not self._watchers:
            return
        for is_over in self._watchers.copy().values():
            is_over.set()
        time.sleep(_SENDING_S)
        for call in self._watchers.copy():
            call.cancel()

    def _state(self, service: str) -> Any:
        if service not in _SERVICES:
            return _State(status=_State.SERVICE_UNKNOWN)
        return _State(status=_State.NOT_SERVING if self._is_stopping else _State.SERVING)


def _service(message: bytes, call: Any) -> str:
    """Return the name of the service that a message asks for; end the call if it can't be read."""
    try:
        check_public_size(message)
        name = health_pb2.HealthCheckRequest.FromString(unpack(message, SMALL_BYTES, lambda _: None)).service
    except StatusError as error:
        call.abort(STATUS_CODES[error.code], error.message)
    except DecodeError:
        call.abort(grpc.StatusCode.INTERNAL, "")
    return str(name)
