"""Sends calls over gRPC. Messages are encoded by `grpc_codec`; channels are configured by `grpc_channel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import grpc

from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.endpoints import Endpoint
from savedmodel_bakery.client.transports import grpc_channel, grpc_codec


class GrpcTransport:
    """One channel to one server or several, for messages up to protobuf's limit of 2 GiB.

    With `for_load` it has a connection that no other channel uses, and never retries.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, timeout_s: float, for_load: bool = False) -> None:
        self._endpoints = endpoints
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(
            grpc_channel.join_addresses(endpoints), options=grpc_channel.channel_options(endpoints, for_load=for_load)
        )

    def send(self, call: Call) -> Any:
        """Send a call; see `Transport.send`."""
        return self.decode(call, self.prepare(call)())

    def prepare(self, call: Call) -> Callable[[], bytes]:
        """Encode a call; see `PreparedTransport.prepare`."""
        invoke = self._channel.unary_unary(grpc_codec.method_of(call).path)
        request = grpc_codec.encode_request(call)

        def send() -> bytes:
            try:
                content: bytes = invoke(request, timeout=self._timeout_s)
            except grpc.RpcError as exc:
                is_connected = self._is_connected(exc.code())
                raise grpc_channel.client_error(
                    exc, self._endpoints, timeout_s=self._timeout_s, is_connected=is_connected
                ) from exc
            return content

        return send

    def decode(self, call: Call, content: bytes) -> Any:
        """Decode a response; see `PreparedTransport.decode`."""
        return grpc_codec.decode_response(call, content)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

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
