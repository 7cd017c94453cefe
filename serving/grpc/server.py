"""The gRPC server: ports, threads, limits, and the status of calls that fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2_grpc

from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.grpc.codec import Rpc
from savedmodel_bakery.serving.grpc.credentials import server_credentials
from savedmodel_bakery.serving.grpc.errors import STATUS_CODES
from savedmodel_bakery.serving.grpc.handlers import Handlers
from savedmodel_bakery.serving.grpc.health import HealthService
from savedmodel_bakery.serving.grpc.profiler import Profiler
from savedmodel_bakery.serving.options.tls import Tls
from savedmodel_bakery.wire.status import Code, StatusError, truncate_message

logger = logging.getLogger(__name__)

# Messages are limited only by protobuf, and no second process may listen on the same port.
_OPTIONS = {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.so_reuseport": 0,
}

_MAX_TIMEOUT_S = 365 * 24 * 3600.0


class GrpcServer:
    """Serves gRPC on TCP ports and Unix sockets.

    Args:
        handlers: the calls to serve.
        addresses: of TCP ports and Unix sockets.
        threads: number of calls processed at the same time; further calls wait.
        arguments: channel arguments, as `k=v,k=v`.
        tls: for every address; None for plain text.
        health: serve the standard health service.
        profiler: TensorFlow's profiler service; None to not serve it.

    Raises:
        StatusError: INVALID_ARGUMENT if an address is not available, or a key or certificate is not valid PEM.
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
        calls = {**handlers.calls(), **(profiler.calls() if profiler else {})}
        self._server.add_generic_rpc_handlers([_Calls(calls)])
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
        """Start to serve calls."""
        self._server.start()

    def stop(self, grace_s: float) -> None:
        """Reject new calls; return when the running ones have finished or the grace period is over."""
        if self._health:
            self._health.stop()
        self._server.stop(grace_s).wait()


def channel_arguments(text: str) -> dict[str, int | str]:
    """Parse `k=v,k=v`; values that fit a 32-bit integer become integers."""
    arguments: dict[str, int | str] = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        try:
            number = int(value)
        except ValueError:
            number = 2**31
        arguments[name] = number if -(2**31) <= number < 2**31 else value
    return arguments


class _Calls(grpc.GenericRpcHandler):
    def __init__(self, calls: Mapping[str, Rpc]) -> None:
        self._handlers = {
            path: grpc.unary_unary_rpc_method_handler(_respond(path, rpc), request_deserializer=_box)
            for path, rpc in calls.items()
        }
        self._unknown = grpc.unary_unary_rpc_method_handler(_reject_unknown)

    def service(self, details: Any) -> Any:
        return self._handlers.get(details.method, self._unknown)


def _reject_unknown(_request: bytes, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "")


def _box(content: bytes) -> list[bytes]:
    """Wrap a request so that it can be freed while it is processed: grpcio keeps what its deserializer returns."""
    return [content]


def _respond(path: str, rpc: Rpc) -> Callable[[list[bytes], Any], bytes]:
    def respond(box: list[bytes], context: Any) -> bytes:
        timeout_s = _timeout_s(context)
        try:
            request = rpc.decode(box.pop())
        except DecodeError:
            context.abort(grpc.StatusCode.INTERNAL, "")
        except Exception:
            context.abort(grpc.StatusCode.INTERNAL, incident.report(logger, path).message)
        try:
            response: bytes = rpc.handle(request, timeout_s).SerializeToString()
        except StatusError as error:
            # As bytes, because the text of a graph's error may contain some that are not UTF-8.
            details = truncate_message(error.message).encode("utf-8", "surrogateescape")
            context.abort(STATUS_CODES[error.code], details)
        except Exception:
            context.abort(grpc.StatusCode.INTERNAL, incident.report(logger, path).message)
        return response

    return respond


def _timeout_s(context: Any) -> float | None:
    """Return the seconds until the caller's deadline; None without one, for which grpcio reports a few centuries."""
    remaining = context.time_remaining()
    return remaining if remaining is not None and remaining < _MAX_TIMEOUT_S else None
