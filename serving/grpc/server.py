"""The gRPC server: ports, threads, limits, and what a caller hears of errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2_grpc

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.grpc.credentials import server_credentials
from savedmodel_bakery.serving.grpc.errors import STATUS_CODES, cut
from savedmodel_bakery.serving.grpc.handlers import Call, Handlers
from savedmodel_bakery.serving.grpc.health import HealthService
from savedmodel_bakery.serving.grpc.profiler import Profiler
from savedmodel_bakery.serving.options.tls import Tls
from savedmodel_bakery.wire.attachments import parse_message
from savedmodel_bakery.wire.schema import METHODS, Method
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

# No limit but protobuf's own, and no second process on the same port.
_OPTIONS = {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.so_reuseport": 0,
}

_LONGEST_TIMEOUT_S = 365 * 24 * 3600.0


class GrpcServer:
    """Answers gRPC on the addresses given.

    Args:
        handlers: what is answered.
        addresses: TCP ports and Unix sockets.
        threads: calls that run at the same time; more wait.
        arguments: channel arguments, as `k=v,k=v`.
        tls: for every address; None is plain text.
        health: whether the standard health service is there.
        profiler: TensorFlow's profiler service; None is none.

    Raises:
        StatusError: INVALID_ARGUMENT where an address can't be listened on, or a key or certificate is no PEM.
    """

    def __init__(
        self,
        handlers: Handlers,
        addresses: list[str],
        *,
        threads: int,
        arguments: str = "",
        tls: Tls | None = None,
        health: bool = False,
        profiler: Profiler | None = None,
    ) -> None:
        self._server = grpc.server(
            ThreadPoolExecutor(threads, thread_name_prefix="grpc"),
            options=list({**_OPTIONS, **channel_arguments(arguments)}.items()),
        )
        self._health = HealthService() if health else None
        if self._health:
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        calls = {METHODS[name]: call for name, call in handlers.calls().items()}
        self._server.add_generic_rpc_handlers([_Methods({**calls, **(profiler.calls() if profiler else {})})])
        try:
            for address in addresses:
                if tls:
                    self._server.add_secure_port(address, server_credentials(tls))
                else:
                    self._server.add_insecure_port(address)
        except RuntimeError as error:
            logger.error("gRPC cannot listen on %s: %s", address, error)
            raise StatusError(Code.INVALID_ARGUMENT, "Failed to BuildAndStart gRPC server") from error

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Take no further calls; return when those running are answered, or when the grace is over."""
        if self._health:
            self._health.end()
        self._server.stop(grace_s).wait()


def channel_arguments(text: str) -> dict[str, int | str]:
    """Read `k=v,k=v`; a value that is a 32-bit integer is one."""
    arguments: dict[str, int | str] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        try:
            number = int(value)
        except ValueError:
            number = 2**31
        arguments[name] = number if -(2**31) <= number < 2**31 else value
    return arguments


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, calls: dict[Method, Call]) -> None:
        self._handlers = {
            method.path: grpc.unary_unary_rpc_method_handler(_answering(method, call), request_deserializer=_box)
            for method, call in calls.items()
        }
        self._unknown = grpc.unary_unary_rpc_method_handler(_refuse_unknown)

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method, self._unknown)


def _refuse_unknown(_request: bytes, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "")


def _box(data: bytes) -> list[bytes]:
    """A request in something that it can be taken out of: grpcio holds on to what it hands over."""
    return [data]


def _answering(method: Method, call: Call) -> Callable[[list[bytes], Any], bytes]:
    def answer(box: list[bytes], context: Any) -> bytes:
        data = box.pop()
        try:
            if method is METHODS["Predict"]:
                parsed = parse_message(method.request, "inputs", data)
                ask = partial(call, parsed.message, attachments=parsed.attachments)
            else:
                ask = partial(call, method.request.FromString(data))
        except DecodeError:
            context.abort(grpc.StatusCode.INTERNAL, "")
        del data  # which may be large
        try:
            answered: bytes = ask(_timeout_s(context)).SerializeToString()
        except StatusError as error:
            context.abort(STATUS_CODES[error.code], cut(error.message))
        except Exception:
            context.abort(grpc.StatusCode.INTERNAL, incident.report(logger, method.path).message)
        return answered

    return answer


def _timeout_s(context: Any) -> float | None:
    """Seconds that the caller still waits; for one who set no deadline grpcio gives a few hundred years."""
    remaining = context.time_remaining()
    return remaining if remaining is not None and remaining < _LONGEST_TIMEOUT_S else None
