"""What only gRPC does: its connections."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from typing import Any

import pytest

from savedmodel_bakery.client import Client, ConnectionFailedError


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


def test_a_listener_that_sends_nothing_is_a_failed_connection() -> None:
    """There is never an HTTP/2 connection, so the model is not slow."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Client(port=listener.getsockname()[1], timeout_s=0.3) as client,
        pytest.raises(ConnectionFailedError),
    ):
        client.status()
