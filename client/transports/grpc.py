"""Sends calls over gRPC, also with asyncio. `grpc_codec` encodes messages, `grpc_channel` configures channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_codec
from savedmodel_bakery.client.transports.grpc_connection import GrpcAioConnection, GrpcConnection
from savedmodel_bakery.client.transports.retries import send_with_retries, send_with_retries_async


class GrpcTransport:
    """One connection to one server or several; see `GrpcConnection`."""

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        self._timeout_s = timeout_s
        self._connection = GrpcConnection(server, timeout_s=timeout_s, for_load=for_load)

    def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        return self.decode(call, send_with_retries(self._prepare(call), timeout_s=self._timeout_s))

    def prepare(self, call: Call) -> Callable[[], bytes]:
        """Encode a call; see `PreparedTransport.prepare`."""
        send = self._prepare(call)
        return lambda: send(self._timeout_s)

    def _prepare(self, call: Call) -> Callable[[float], bytes]:
        return self._connection.prepare(grpc_codec.method_of(call).path, grpc_codec.encode_request(call))

    def decode(self, call: Call, content: bytes) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        return grpc_codec.decode_response(call, content)

    def close(self) -> None:
        """Close the channel."""
        self._connection.close()


class GrpcAioTransport:
    """One connection to one server or several; see `GrpcAioConnection`."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._connection = GrpcAioConnection(server, timeout_s=timeout_s)

    async def send(self, call: Call) -> Any:
        """Send a call, with retries; the results are those of `Transport.send`."""
        path, request = grpc_codec.method_of(call).path, grpc_codec.encode_request(call)

        async def send(timeout_s: float) -> bytes:
            return await self._connection.send(path, request, timeout_s=timeout_s)

        return grpc_codec.decode_response(call, await send_with_retries_async(send, timeout_s=self._timeout_s))

    async def close(self) -> None:
        """Close the channel."""
        await self._connection.close()
