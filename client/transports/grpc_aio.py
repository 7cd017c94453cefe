"""Questions over gRPC without waiting; the sibling of `grpc_transport`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from savedmodel_bakery.client.calls import Question
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.client.transports import grpc_codec as grpc_messages
from savedmodel_bakery.client.transports.transport import Endpoint


class GrpcAioTransport:
    """One channel to one server or several, for the event loop that first asks."""

    def __init__(self, endpoints: Sequence[Endpoint], *, timeout_s: float) -> None:
        self._endpoints = endpoints
        self._timeout_s = timeout_s
        self._address = grpc_channel.address_of(endpoints)
        self._channel: Any = None

    async def ask(self, question: Question) -> Any:
        """Put a question; the answers are those of `Transport.ask`."""
        if self._channel is None:  # here, as a channel needs a running loop
            self._channel = grpc.aio.insecure_channel(self._address, options=grpc_channel.options_for(self._endpoints))
        call = self._channel.unary_unary(grpc_messages.method_of(question).path)
        try:
            answer = await call(grpc_messages.encode_request(question), timeout=self._timeout_s)
        except grpc.RpcError as exc:
            raise grpc_channel.error_of(
                exc, self._endpoints, timeout_s=self._timeout_s, is_connected=self._is_connected
            ) from exc
        return grpc_messages.decode_answer(question, answer)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    def _is_connected(self) -> bool:
        return bool(self._channel.get_state() is grpc.ChannelConnectivity.READY)
