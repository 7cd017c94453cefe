"""Sends calls over gRPC in the v2 protocol with asyncio; the counterpart of `v2_grpc`."""

from __future__ import annotations

import time
from typing import Any

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.flow_runners import run_flow_async
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import v2_flows, v2_grpc_codec
from savedmodel_bakery.client.transports.grpc_connection_aio import GrpcAioConnection
from savedmodel_bakery.client.transports.retries import remaining_s, send_with_retries_async


class V2GrpcAioTransport:
    """One connection to one server or several; see `GrpcAioConnection`."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._connection = GrpcAioConnection(server, timeout_s=timeout_s)

    async def send(self, call: Call) -> Any:
        """Send a call, with retries; the results are those of `Transport.send`."""
        end_s = time.monotonic() + self._timeout_s

        async def send(request: v2_flows.Request) -> Any:
            path, message = v2_grpc_codec.encode_request(request)

            async def send_once(timeout_s: float) -> bytes:
                return await self._connection.send(path, message, timeout_s=timeout_s)

            content = await send_with_retries_async(send_once, timeout_s=remaining_s(end_s))
            return v2_grpc_codec.decode_response(request, content)

        return await run_flow_async(v2_flows.exchange(call), send)

    async def close(self) -> None:
        """Close the channel."""
        await self._connection.close()
