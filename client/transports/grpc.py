"""Questions over gRPC. Must not know HTTP; messages are for `grpc_messages`, channels for `grpc_channel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import grpc

from savedmodel_bakery.client.calls import Question
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.client.transports import grpc_codec as grpc_messages
from savedmodel_bakery.client.transports.transport import Endpoint


class GrpcTransport:
    """One channel to one server or several; messages of any size that protobuf can hold (2 GiB).

    `for_load` gives it a connection of its own, over which nothing is tried again.
    """

    def __init__(self, endpoints: Sequence[Endpoint], *, timeout_s: float, for_load: bool = False) -> None:
        self._endpoints = endpoints
        self._timeout_s = timeout_s
        self._channel = grpc.insecure_channel(
            grpc_channel.address_of(endpoints), options=grpc_channel.options_for(endpoints, for_load=for_load)
        )

    def ask(self, question: Question) -> Any:
        """Put a question; see `Transport.ask`."""
        return self.decode(question, self.prepare(question)())

    def prepare(self, question: Question) -> Callable[[], bytes]:
        """Write a question; see `Transport.prepare`."""
        call = self._channel.unary_unary(grpc_messages.method_of(question).path)
        request = grpc_messages.encode_request(question)

        def put() -> bytes:
            try:
                answer: bytes = call(request, timeout=self._timeout_s)
            except grpc.RpcError as exc:
                raise grpc_channel.error_of(
                    exc, self._endpoints, timeout_s=self._timeout_s, is_connected=self._is_connected
                ) from exc
            return answer

        return put

    def decode(self, question: Question, content: bytes) -> Any:
        """Read an answer; see `Transport.decode`."""
        return grpc_messages.decode_answer(question, content)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _is_connected(self) -> bool:
        """Ask the channel, as an error doesn't say whether it came from the server or from the way there."""
        states: list[grpc.ChannelConnectivity] = []
        told = Event()

        def listen(state: grpc.ChannelConnectivity) -> None:
            states.append(state)
            told.set()

        self._channel.subscribe(listen)
        told.wait(timeout=1)
        self._channel.unsubscribe(listen)
        return bool(states) and states[0] is grpc.ChannelConnectivity.READY
