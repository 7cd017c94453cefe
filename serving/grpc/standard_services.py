"""The standard services of gRPC: health (grpc.health.v1) and server reflection (grpc.reflection)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.call import Rpc
from savedmodel_bakery.serving.call.threads import CallThreads
from savedmodel_bakery.serving.grpc.codec import STATUS_CODES, parse_small
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.v2 import schema as v2_schema

WATCH = "/grpc.health.v1.Health/Watch"
"""The path of the call of the health service that streams."""

# The names that tensorflow_model_server sets; the empty name is the whole process.
_SERVICES = ("", "ModelService", "PredictionService")
_MAX_WATCHERS = 1000
_SENDING_S = 0.5  # for the last state

_Send = Callable[[bytes | None], None]
"""Sends a response, and returns when it has been sent; None ends the call."""

_State = health_pb2.HealthCheckResponse

REFLECTION_PATHS = tuple(
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo" for version in ("v1", "v1alpha")
)
"""The calls of server reflection, each a stream of requests and a stream of responses."""


class HealthService:
    """Reports the state of the server, not of its models: every service is SERVING until the server stops.

    Ports open only after the first models are loaded. The threads send watchers the last state when the server stops.

    The service of the package grpcio-health-checking keeps a lock while it sends, so one watcher who does not read
    would block all checks. As there, a watcher holds no thread.
    """

    def __init__(self, threads: CallThreads) -> None:
        self._threads = threads
        self._changing = threading.Lock()
        # By call, the service and how to send its state; None until the first state has been sent, as gRPC can't send
        # two messages of a call at a time.
        self._watchers: dict[Any, tuple[str, _Send] | None] = {}
        self._is_stopping = False

    def calls(self) -> dict[str, Rpc]:
        """Return the unary call by path."""
        return {
            "/grpc.health.v1.Health/Check": Rpc(health_pb2.HealthCheckRequest.FromString, self.check, is_public=True)
        }

    def check(self, request: Any, _: RequestContext) -> Any:
        """Return the state of a service; unknown names are NOT_FOUND, with the text of gRPC's own implementation."""
        if request.service not in _SERVICES:
            raise StatusError(Code.NOT_FOUND, "service name unknown")
        return self._state(request.service)

    def watch(self, messages: Iterator[bytes], call: Any, send: _Send) -> None:
        """Send the state of a service. The call holds no thread until its next state is sent, when the server stops."""
        message = next(messages, None)
        if message is None:
            send(None)
            return
        try:
            service = str(parse_small(health_pb2.HealthCheckRequest, message).service)
        except StatusError as error:
            call.abort(STATUS_CODES[error.code], error.message)
        except DecodeError:
            call.abort(grpc.StatusCode.INTERNAL, "")
        with self._changing:
            if len(self._watchers) >= _MAX_WATCHERS:
                call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} calls watch already")
            self._watchers[call] = None
        if not call.add_callback(partial(self._forget, call)):  # it has ended already
            self._forget(call)
            return
        send(self._state(service).SerializeToString())
        with self._changing:
            if call in self._watchers:
                self._watchers[call] = service, send
        if self._is_stopping:
            self._end(call)

    def stop(self) -> None:
        """Report NOT_SERVING from now on, and end the calls of all watchers, which would otherwise delay the end."""
        self._is_stopping = True
        watchers = list(self._watchers)
        if not watchers:
            return
        for call in watchers:
            self._threads.submit(self._end, call)
        time.sleep(_SENDING_S)
        for call in watchers:
            call.cancel()

    def _end(self, call: Any) -> None:
        """Send the last state to a watcher, and end its call."""
        with self._changing:
            watcher = self._watchers.get(call)
            if watcher is None:
                return
            del self._watchers[call]
        service, send = watcher
        send(self._state(service).SerializeToString())
        send(None)

    def _forget(self, call: Any) -> None:
        with self._changing:
            self._watchers.pop(call, None)

    def _state(self, service: str) -> Any:
        if service not in _SERVICES:
            return _State(status=_State.SERVICE_UNKNOWN)
        return _State(status=_State.NOT_SERVING if self._is_stopping else _State.SERVING)


class Reflection:
    """Describes the services of the port to tools such as grpcurl, and itself.

    Source of the rules: grpc.reflection.v1alpha in gRPC's `reflection.proto`; the messages of v1 are the same.
    """

    def __init__(self, services: Collection[str]) -> None:
        pool = descriptor_pool.DescriptorPool()
        # TensorFlow's wheel has no descriptor of its ProfilerService, so that is not listed either.
        described = [name for name in {*services, reflection.SERVICE_NAME} if _add_service(name, pool)]
        self._servicer = reflection.ReflectionServicer(described, pool)

    def answer(self, messages: Iterator[bytes], call: Any) -> Iterator[bytes]:
        """Yield the response to each message."""
        requests = map(partial(parse_small, ServerReflectionRequest), messages)
        for response in self._servicer.ServerReflectionInfo(requests, call):
            yield response.SerializeToString()


def _add_service(name: str, pool: Any) -> bool:
    """Add the files that define a service, of whichever pool has them; return whether one has."""
    for source in (schema.POOL, v2_schema.POOL, descriptor_pool.Default()):
        with suppress(KeyError):
            _add(source.FindServiceByName(name).file, pool)
            return True
    return False


def _add(file: Any, pool: Any) -> None:
    for dependency in file.dependencies:
        _add(dependency, pool)
    pool.AddSerializedFile(file.serialized_pb)
