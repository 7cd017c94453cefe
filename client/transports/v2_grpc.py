"""Sends calls over gRPC in the v2 protocol, also with asyncio. Messages are encoded by `v2_grpc_codec`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from savedmodel_bakery.client.calls import Call, Predict
from savedmodel_bakery.client.flow_runners import run_flow, run_flow_async
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import v2_flows, v2_grpc_codec
from savedmodel_bakery.client.transports.grpc_connection import GrpcAioConnection, GrpcConnection
from savedmodel_bakery.client.transports.retries import remaining_s, send_with_retries, send_with_retries_async


class V2GrpcTransport:
    """One connection to one server or several; see `GrpcConnection`."""

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        self._timeout_s = timeout_s
        self._connection = GrpcConnection(server, timeout_s=timeout_s, for_load=for_load)

    def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        end_s = time.monotonic() + self._timeout_s

        def send(request: v2_flows.Request) -> Any:
            content = send_with_retries(self._encode(request), timeout_s=remaining_s(end_s))
            return v2_grpc_codec.decode_response(request, content)

        return run_flow(v2_flows.exchange(call), send)

    def prepare(self, call: Call) -> Callable[[], Any]:
        """Encode a call; see `PreparedTransport.prepare`. Only Predict is a single request."""
        if not isinstance(call, Predict):
            return lambda: self.send(call)
        send = self._encode(v2_flows.start(call))
        return lambda: send(self._timeout_s)

    def decode(self, call: Call, content: Any) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        if not isinstance(call, Predict):
            return content
        return v2_flows.read_prediction(call, v2_grpc_codec.decode_infer_response(content))

    def close(self) -> None:
        """Close the channel."""
        self._connection.close()

    def _encode(self, request: v2_flows.Request) -> Callable[[float], bytes]:
        return self._connection.prepare(*v2_grpc_codec.encode_request(request))


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
