"""Sends gRPC requests over one channel and maps their errors to ClientError, for the APIs over gRPC."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from threading import Event

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel


class GrpcConnection:
    """One channel to one server or several, for messages up to protobuf's limit of 2 GiB.

    With `for_load` it has a connection that no other channel uses.
    """

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = grpc_channel.call_metadata(server)
        self._channel = grpc_channel.create_channel(server, for_load=for_load)
        # Of a connection that is dropped, or still open when the program ends: gRPC waits for ever for the thread that
        # watches the channel's state if Python's exit has stopped it.
        self._close = weakref.finalize(self, self._channel.close)

    def prepare(self, path: str, request: bytes) -> Callable[[float], bytes]:
        """Return the function that sends a request to a method once, within a number of seconds.

        The function returns the serialized response, or raises ClientError.
        """
        invoke = self._channel.unary_unary(path)

        def send(timeout_s: float) -> bytes:
            with grpc_channel.call_span(path, self._server):
                metadata = (*self._metadata, *tracing.headers().items())
                try:
                    content: bytes = invoke(request, timeout=timeout_s, metadata=metadata)
                except grpc.RpcError as exc:
                    is_connected = self._is_connected(exc.code())
                    raise grpc_channel.client_error(
                        exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected
                    ) from exc
                return content

        return send

    def close(self) -> None:
        """Close the channel."""
        self._close()

    def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected: an error does not say whether server or connection caused it."""
        is_connecting = code is grpc.StatusCode.DEADLINE_EXCEEDED
        states: list[grpc.ChannelConnectivity] = []
        decided = Event()

        def listen(state: grpc.ChannelConnectivity) -> None:
            states.append(state)
            if state is grpc.ChannelConnectivity.READY or not is_connecting:
                decided.set()

        self._channel.subscribe(listen)
        decided.wait(timeout=grpc_channel.CONNECTING_S)
        self._channel.unsubscribe(listen)
        return grpc.ChannelConnectivity.READY in states
