"""Sends calls over gRPC with asyncio; the counterpart of `grpc`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel, grpc_codec
from savedmodel_bakery.client.transports.retries import send_with_retries_async

_POLL_S = 0.02


class GrpcAioTransport:
    """One channel to one server or several, bound to the event loop of the first call."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        grpc_channel.join_addresses(server.endpoints)  # raises ValueError
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = grpc_channel.call_metadata(server)
        self._channel: Any = None

    async def send(self, call: Call) -> Any:
        """Send a call, with retries; the results are those of `Transport.send`."""
        if self._channel is None:  # created here because it needs a running loop
            self._channel = grpc_channel.create_aio_channel(self._server)
        invoke = self._channel.unary_unary(grpc_codec.method_of(call).path)
        request = grpc_codec.encode_request(call)

        async def send(timeout_s: float) -> bytes:
            try:
                content: bytes = await invoke(request, timeout=timeout_s, metadata=self._metadata)
            except grpc.RpcError as exc:
                is_connected = await self._is_connected(exc.code())
                raise grpc_channel.client_error(
                    exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected
                ) from exc
            return content

        return grpc_codec.decode_response(call, await send_with_retries_async(send, timeout_s=self._timeout_s))

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
            await asyncio.sleep(_POLL_S)
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)
