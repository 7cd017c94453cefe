"""What only gRPC does: its connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from savedmodel_bakery.client import AsyncClient, Client, ConnectionFailedError, DeadlineExceededError
from savedmodel_bakery.client.transports import grpc_channel
from savedmodel_bakery.client.transports.grpc import GrpcTransport
from savedmodel_bakery.client.transports.grpc_aio import GrpcAioTransport


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
    with Client(port=port) as client, pytest.raises(ConnectionFailedError, match="over gRPC; is a model server"):
        client.status()


@pytest.fixture
def late_port(peer: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port whose listener accepts no HTTP/2 connection until a client asks, after a deadline, for its state."""
    with ExitStack() as stack:
        silent = stack.enter_context(socket.socket())
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]

        def start_server() -> None:
            stack.enter_context(peer.serve_grpc(port))
            silent.close()

        is_connected, is_connected_async = GrpcTransport._is_connected, GrpcAioTransport._is_connected

        def look(self: GrpcTransport, code: Any) -> bool:
            start_server()
            return is_connected(self, code)

        async def look_async(self: GrpcAioTransport, code: Any) -> bool:
            start_server()
            return await is_connected_async(self, code)

        monkeypatch.setattr(GrpcTransport, "_is_connected", look)
        monkeypatch.setattr(GrpcAioTransport, "_is_connected", look_async)
        monkeypatch.setattr(grpc_channel, "CONNECTING_S", 30)
        yield port


def test_a_deadline_before_the_connection_is_open_is_a_deadline(late_port: int) -> None:
    with Client(port=late_port, timeout_s=0.1) as client, pytest.raises(DeadlineExceededError) as caught:
        client.status()
    assert f"no response from 127.0.0.1:{late_port} over gRPC within 0.1 s" == str(caught.value)


def test_with_asyncio_it_is_a_deadline_too(late_port: int) -> None:
    async def call() -> None:
        async with AsyncClient(port=late_port, timeout_s=0.1) as client:
            await client.status()

    with pytest.raises(DeadlineExceededError) as caught:
        asyncio.run(call())
    assert f"no response from 127.0.0.1:{late_port} over gRPC within 0.1 s" == str(caught.value)


def test_a_listener_that_sends_nothing_is_a_failed_connection() -> None:
    """There is never an HTTP/2 connection, so the model is not slow."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Client(port=listener.getsockname()[1], timeout_s=0.3) as client,
        pytest.raises(ConnectionFailedError),
    ):
        client.status()
