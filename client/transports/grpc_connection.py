"""Sends gRPC requests over one channel and maps their errors to ClientError, for the APIs over gRPC."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel

_READY: int = grpc.ChannelConnectivity.READY.value[0]
_POLL_INTERVAL_S = 0.01


class GrpcConnection:
    """One channel to one server or several, for messages up to protobuf's limit of 2 GiB.

    With `for_load` it has a connection that no other channel uses.
    """

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = grpc_channel.call_metadata(server)
        self._channel = grpc_channel.create_channel(server, for_load=for_load)

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
        self._channel.close()

    def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected: an error does not say whether server or connection caused it."""
        # Not by `subscribe`: it starts a thread, for which gRPC waits for ever if the program ends first.
        read_state = self._channel._channel.check_connectivity_state
        deadline = time.monotonic() + (grpc_channel.CONNECTING_S if code is grpc.StatusCode.DEADLINE_EXCEEDED else 0.0)
        with suppress(ValueError):  # another thread has closed the channel
            while read_state(False) != _READY:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_INTERVAL_S)
            return True
        return False
