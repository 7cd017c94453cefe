"""Sends calls over gRPC with asyncio; the counterpart of `grpc`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import grpc

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.transports import grpc_channel, grpc_codec

_POLL_S = 0.02


class GrpcAioTransport:
    """One channel to one server or several, bound to the event loop of the first call."""

    def __init__(self, endpoints: Sequence[Endpoint], *, timeout_s: float) -> None:
        self._endpoints = endpoints
        self._timeout_s = timeout_s
        self._address = grpc_channel.join_addresses(endpoints)
        self._channel: Any = None

    async def send(self, call: Call) -> Any:
        """Send a call; the results are those of `Transport.send`."""
        if self._channel is None:  # created here because it needs a running loop
            options = grpc_channel.channel_options(self._endpoints)
            self._channel = grpc.aio.insecure_channel(self._address, options=options)
        invoke = self._channel.unary_unary(grpc_codec.method_of(call).path)
        try:
            content = await invoke(grpc_codec.encode_request(call), timeout=self._timeout_s)
        except grpc.RpcError as exc:
            is_connected = await self._is_connected(exc.code())
            raise grpc_channel.client_error(
                exc, self._endpoints, timeout_s=self._timeout_s, is_connected=is_connected
            ) from exc
        return grpc_codec.decode_response(call, content)

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
