"""Fixtures of the end-to-end tests: a server and clients per baked model, shared by the tests of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from server_process import ServerProcess

from savedmodel_bakery import Client
from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.serving.amqp.backends import RemoteServer
from savedmodel_bakery.serving.amqp.codec import Message
from savedmodel_bakery.serving.amqp.handlers import CallLimits, Handlers


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], ServerProcess]]:
    """Serve a base path under the name of its folder."""
    servers: dict[Path, ServerProcess] = {}
    with ExitStack() as stack:

        def serve(base_path: Path) -> ServerProcess:
            if base_path not in servers:
                flags = (
                    f"--model_name={base_path.name}",
                    f"--model_base_path={base_path}",
                    "--enable_model_warmup=false",
                )
                log = tmp_path_factory.mktemp("server") / "log"
                servers[base_path] = stack.enter_context(ServerProcess(*flags, log=log))
            return servers[base_path]

        yield serve


@pytest.fixture(scope="module")
def clients(serve: Callable[[Path], ServerProcess]) -> Iterator[Callable[[Path], list[Client]]]:
    """Connect to the server of a base path over gRPC and REST."""
    connected: dict[Path, list[Client]] = {}
    with ExitStack() as stack:

        def clients(base_path: Path) -> list[Client]:
            if base_path not in connected:
                server, model = serve(base_path), base_path.name
                opened = [Client(target, model=model) for target in (server.target, server.url)]
                connected[base_path] = [stack.enter_context(client) for client in opened]
            return connected[base_path]

        yield clients


@pytest.fixture
def ask_amqp(serve: Callable[[Path], ServerProcess]) -> Callable[[Path, bytes], dict[str, Any]]:
    """Give an image to the handlers of a worker in front of a server; return the row of the JSON response."""

    def ask_amqp(base_path: Path, image: bytes) -> dict[str, Any]:
        backend = RemoteServer(parse_server(serve(base_path).target))
        try:
            handlers = Handlers(backend, model_name=base_path.name, limits=CallLimits(60))
            (response,) = handlers.handle([Message(image, "image/png")])
        finally:
            backend.close()
        assert response.error is None
        (row,) = json.loads(response.body)["predictions"]
        assert (True, "") == (row["ok"], row["error"])
        return dict(row)

    return ask_amqp
