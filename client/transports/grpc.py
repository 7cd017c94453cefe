"""Sends calls over gRPC, also with asyncio, in TensorFlow Serving's API or the v2 protocol.

The codec of the API encodes the messages (`grpc_codec` or `v2_grpc_codec`); `grpc_channel` configures channels.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from types import ModuleType
from typing import Any

import grpc

from savedmodel_bakery import tracing
from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.flow_runners import run_flow_async
from savedmodel_bakery.client.servers import Server
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.client.transports.retries import send_with_retries_async
from savedmodel_bakery.client.transports.transport import ServerTransport

_READY: int = grpc.ChannelConnectivity.READY.value[0]
_POLL_INTERVAL_S = 0.02


class GrpcTransport(ServerTransport):
    """One channel to one server or several, for messages up to protobuf's limit of 2 GiB.

    With `for_load` it has a connection that no other channel uses.
    """

    def __init__(self, server: Server, *, timeout_s: float, for_load: bool = False) -> None:
        super().__init__(timeout_s)
        self._codec = _import_codec(server)
        self._server = server
        self._metadata = grpc_channel.call_metadata(server)
        self._channel = grpc_channel.create_channel(server, for_load=for_load)

    def prepare_message(self, path: str, message: bytes) -> Callable[[float], bytes]:
        """Return the function that sends a message to a method once, within a number of seconds.

        The function returns the serialized response, or raises ClientError.
        """
        invoke = self._channel.unary_unary(path)

        def send(timeout_s: float) -> bytes:
            with grpc_channel.call_span(path, self._server):
                metadata = (*self._metadata, *tracing.headers().items())
                try:
                    content: bytes = invoke(message, timeout=timeout_s, metadata=metadata)
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

    def _exchange(self, call: Call) -> Generator[Any, Any, Any]:
        flow: Generator[Any, Any, Any] = self._codec.exchange(call)
        return flow

    def _prepare(self, request: Any, _end_s: float) -> Callable[[float], bytes]:
        return self.prepare_message(self._codec.method_of(request).path, self._codec.encode_request(request))

    def _decode(self, request: Any, content: Any) -> Any:
        return self._codec.decode_response(request, content)

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


class GrpcAioTransport:
    """The same for asyncio; the channel is bound to the event loop of the first call."""

    def __init__(self, server: Server, *, timeout_s: float) -> None:
        grpc_channel.join_addresses(server.endpoints)  # raises ValueError
        self._codec = _import_codec(server)
        self._server = server
        self._timeout_s = timeout_s
        self._metadata = grpc_channel.call_metadata(server)
        self._channel: Any = None

    async def send(self, call: Call) -> Any:
        """Send a call, with retries; see `Transport.send`."""
        end_s = time.monotonic() + self._timeout_s

        async def send(request: Any) -> Any:
            path, message = self._codec.method_of(request).path, self._codec.encode_request(request)
            content = await send_with_retries_async(
                lambda timeout_s: self._send_once(path, message, timeout_s), end_s=end_s
            )
            return self._codec.decode_response(request, content)

        return await run_flow_async(self._codec.exchange(call), send)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def _send_once(self, path: str, message: bytes, timeout_s: float) -> bytes:
        if self._channel is None:  # created here because it needs a running loop
            self._channel = grpc_channel.create_channel(self._server, api=grpc.aio)
        with grpc_channel.call_span(path, self._server):
            metadata = (*self._metadata, *tracing.headers().items())
            try:
                content: bytes = await self._channel.unary_unary(path)(message, timeout=timeout_s, metadata=metadata)
            except grpc.RpcError as exc:
                is_connected = await self._is_connected(exc.code())
                raise grpc_channel.client_error(
                    exc, self._server, timeout_s=self._timeout_s, is_connected=is_connected
                ) from exc
            return content

    async def _is_connected(self, code: grpc.StatusCode) -> bool:
        """Return whether the channel is connected. Polls, because gRPC may hang after a cancelled `channel_ready`."""
        end = time.monotonic() + grpc_channel.CONNECTING_S
        while code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() < end:
            if self._channel.get_state() is grpc.ChannelConnectivity.READY:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)


def _import_codec(server: Server) -> ModuleType:
    """Return the module that encodes and decodes the messages of the server's API."""
    if server.transport == "v2-grpc":
        from savedmodel_bakery.client.transports import v2_grpc_codec

        return v2_grpc_codec
    from savedmodel_bakery.client.transports import grpc_codec

    return grpc_codec
