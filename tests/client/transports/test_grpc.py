"""What only gRPC does: its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import grpc.aio
import pytest

from savedmodel_bakery import AsyncClient, Client, ConnectionFailedError, DeadlineExceededError
from savedmodel_bakery.client.transports import grpc as transport


def test_a_channel_connects_again_when_the_server_is_up(peer: Any, closed_port: int) -> None:
    """A channel that backs off fails calls without a connection attempt."""
    with Client(port=closed_port, model="half_plus_two") as client:
        with pytest.raises(ConnectionFailedError):
            client.status()
        with peer.serve_grpc(closed_port):
            versions = None
            while versions is None:  # until the pause between two attempts is over
                with contextlib.suppress(ConnectionFailedError):
                    versions = client.status()
            assert 3 == versions[0].version


def test_an_http_server_is_a_failed_connection(respond_with: Callable[[str], int]) -> None:
    port = respond_with("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    with (
        Client(port=port, model="tagger") as client,
        pytest.raises(ConnectionFailedError, match="answers in HTTP/1"),
    ):
        client.status()


class LateServer:
    """A port whose listener accepts no HTTP/2 connection until `start` is called; later calls have no effect."""

    def __init__(self, peer: Any, stack: ExitStack) -> None:
        self._peer, self._stack = peer, stack
        self._silent = stack.enter_context(socket.socket())
        self._silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._silent.bind(("127.0.0.1", 0))
        self._silent.listen()
        self.port = self._silent.getsockname()[1]
        self.starts = iter([self._start])

    def start(self) -> None:
        for start in self.starts:
            start()

    def _start(self) -> None:
        self._stack.enter_context(self._peer.serve_grpc(self.port))
        self._silent.close()


@pytest.fixture
def late_server(peer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LateServer]:
    monkeypatch.setattr(transport, "CONNECTING_S", 30)
    with ExitStack() as stack:
        yield LateServer(peer, stack)


def test_a_deadline_before_the_connection_is_open_is_a_deadline(
    late_server: LateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server starts when the client has seen, after the deadline, that it is not connected."""
    with Client(port=late_server.port, model="slow", timeout_s=0.1) as client:
        transport = client._transport
        is_connected = transport._is_connected
        monkeypatch.setattr(transport, "_is_connected", lambda code: (late_server.start(), is_connected(code))[1])
        with pytest.raises(DeadlineExceededError) as caught:
            client.status()
    assert f"no response from 127.0.0.1:{late_server.port} over gRPC within 0.1 s" == str(caught.value)


def test_with_asyncio_it_is_a_deadline_too(late_server: LateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    insecure_channel = grpc.aio.insecure_channel

    def create_channel(*arguments: Any, **options: Any) -> grpc.aio.Channel:
        channel = insecure_channel(*arguments, **options)
        get_state = channel.get_state

        def get_state_and_start(**options: Any) -> grpc.ChannelConnectivity:
            state = get_state(**options)
            late_server.start()
            return state

        channel.get_state = get_state_and_start
        return channel

    async def call() -> None:
        async with AsyncClient(port=late_server.port, model="slow", timeout_s=0.1) as client:
            await client.status()

    monkeypatch.setattr(grpc.aio, "insecure_channel", create_channel)
    with pytest.raises(DeadlineExceededError) as caught:
        asyncio.run(call())
    assert f"no response from 127.0.0.1:{late_server.port} over gRPC within 0.1 s" == str(caught.value)


def test_a_listener_that_sends_nothing_is_a_failed_connection() -> None:
    """There is never an HTTP/2 connection, so the model is not slow."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Client(port=listener.getsockname()[1], model="slow", timeout_s=0.3) as client,
        pytest.raises(ConnectionFailedError),
    ):
        client.status()
