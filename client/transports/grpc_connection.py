"""Sends gRPC requests over one channel, also with asyncio, and maps their errors to ClientError."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel

_READY: int = grpc.ChannelConnectivity.READY.value[0]
_POLL_INTERVAL_S = 0.02


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


class GrpcAioConnection:
    """One channel to one server or several, bound to the event loop of the first request."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        grpc_channel.join_addresses(server.endpoints)  # raises ValueError
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = grpc_channel.call_metadata(server)
        self._channel: Any = None

    async def send(self, path: str, request: bytes, *, timeout_s: float) -> bytes:
        """Send a request to a method once and return the serialized response.

        Raises:
            ClientError: the request failed.
        """
        if self._channel is None:  # created here because it needs a running loop
            self._channel = grpc_channel.create_aio_channel(self._server)
        with grpc_channel.call_span(path, self._server):
            metadata = (*self._metadata, *tracing.headers().items())
            try:
                content: bytes = await self._channel.unary_unary(path)(request, timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as exc:
                is_connected = await self._is_connected(exc.code())
                raise grpc_channel.client_error(
                    exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected
                ) from exc
            return content

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected. Polls, because gRPC may hang after a cancelled `channel_ready`."""
        end = time.monotonic() + grpc_channel.CONNECTING_S
        while code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() < end:
            if self._channel.get_state() is grpc.ChannelConnectivity.READY:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)
