"""Sends calls over gRPC with asyncio; the counterpart of `grpc`."""

from __future__ import annotations

from typing import Any

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_codec
from savedmodel_bakery.client.transports.grpc_connection_aio import GrpcAioConnection
from savedmodel_bakery.client.transports.retries import send_with_retries_async


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
