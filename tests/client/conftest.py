"""Fixtures for the tests of the client: a server with canned models, and clients of it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from canned_server import Peer
from canned_v2 import V2
from tls_files import TlsFiles

from savedmodel_bakery import Client


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """A running server with canned models, at `grpc_port` and `rest_port`."""
    peer = Peer()
    with peer.serve_grpc() as peer.grpc_port, peer.serve_rest() as peer.rest_port:
        yield peer
        peer.released.set()


@pytest.fixture
def v2(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> V2:
    """How the server speaks v2, for tests that change it or read its records."""
    monkeypatch.setattr(peer, "v2", V2())
    return peer.v2


@pytest.fixture(scope="session")
def tls_files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    """Certificates of servers and clients."""
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["grpc", "rest"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    return request.param


@pytest.fixture
def connect(peer: Any, transport: str) -> Iterator[Callable[..., Client]]:
    """Create clients of the canned server over the transport; they are closed at the end."""
    clients = []

    def connect(model: str = "half_plus_two", **options: Any) -> Client:
        settings = {"port": peer.grpc_port, "rest_api_port": peer.rest_port, "timeout_s": 10.0, **options}
        clients.append(Client(transport=transport, model=model, **settings))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxies and client settings from the environment, but for a model."""
    for name in os.environ:
        if name.lower().endswith("_proxy") or name.startswith("BAKERY_CLIENT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BAKERY_CLIENT_MODEL_SPEC_NAME", "efficientnet_lite0")  # the canned server has several
