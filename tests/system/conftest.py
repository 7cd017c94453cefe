"""Tests that need Debian packages, root or much memory: `make test-system` runs these, `make test` the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from amqp_worker import WorkerProcess
from rabbitmq import RabbitMQ
from server_process import ServerProcess

from savedmodel_bakery.client import AmqpClient

MODEL = "half_plus_two"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
def task_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for `--model_config_file` with a baked model per task; `photo.png` is beside it."""
    from baked_tasks import bake_tasks  # imports TensorFlow

    return bake_tasks(tmp_path_factory.mktemp("models"))


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker per test: RabbitMQ 3.10 fails to declare a quorum queue again after a restart."""
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as running:
        yield running


@pytest.fixture(scope="session")
def server(half_plus_two: Path) -> Iterator[ServerProcess]:
    """A model server with half_plus_two."""
    flags = (f"--model_name={MODEL}", f"--model_base_path={half_plus_two}")
    with ServerProcess(*flags, log=half_plus_two.parent / "server.log") as running:
        yield running


@pytest.fixture
def start(broker: RabbitMQ, server: ServerProcess, tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start workers that call the server; stop them at the end."""
    workers: list[WorkerProcess] = []

    def start(*options: str, url: str = broker.url(), target: str = server.target, wait: bool = True) -> WorkerProcess:
        log = tmp_path / f"worker{len(workers)}.log"
        all_options = ("--server", target, "--model-name", MODEL, *options)
        workers.append(WorkerProcess(url, *all_options, log=log, wait=wait))
        return workers[-1]

    yield start
    for worker in workers:
        worker.stop()


@pytest.fixture
def connect(broker: RabbitMQ) -> Iterator[Callable[..., AmqpClient]]:
    """Create clients; close them at the end."""
    clients: list[AmqpClient] = []

    def connect(url: str = broker.url(), **options: object) -> AmqpClient:
        clients.append(AmqpClient(url, **{"model": MODEL, "timeout_s": 60.0, **options}))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()
