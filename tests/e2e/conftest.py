"""Fixtures of the end-to-end tests: a server and clients per baked model, shared by the tests of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from server_process import ServerProcess

from savedmodel_bakery import LocalTransport
from savedmodel_bakery.client import Client


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], ServerProcess]]:
    """Serve a base path under the name of its folder."""
    servers: dict[Path, ServerProcess] = {}
    with ExitStack() as stack:

        def serve(base_path: Path) -> ServerProcess:
            if base_path not in servers:
                flags = (f"--model_name={base_path.name}", f"--model_base_path={base_path}")
                log = tmp_path_factory.mktemp("server") / "log"
                servers[base_path] = stack.enter_context(ServerProcess(*flags, log=log))
            return servers[base_path]

        yield serve


@pytest.fixture(scope="module")
def clients(serve: Callable[[Path], ServerProcess]) -> Iterator[Callable[[Path], list[Client]]]:
    """Connect to the server of a base path over gRPC and REST; the last client runs the model itself."""
    connected: dict[Path, list[Client]] = {}
    with ExitStack() as stack:

        def clients(base_path: Path) -> list[Client]:
            if base_path not in connected:
                server, model = serve(base_path), base_path.name
                opened = (
                    Client(server.target, model=model),
                    Client(server.url, model=model),
                    Client(transport=LocalTransport(base_path)),
                )
                connected[base_path] = [stack.enter_context(client) for client in opened]
            return connected[base_path]

        yield clients
