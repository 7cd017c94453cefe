"""Tests that need Debian packages, root or much memory: `make test-system` runs these, `make test` the others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import container_images
import pytest
from amqp_worker import WorkerProcess
from bake_cache import digest
from container_images import BASES, MAX_KEPT_BYTES, Images, image_blocks, image_commands, kept_bytes
from filelock import FileLock
from rabbitmq import RabbitMQ
from server_process import ServerProcess

from savedmodel_bakery import AmqpClient

MODEL = "half_plus_two"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder, except those that `make test-slow` runs."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.system)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A broker for the tests that do not disturb it."""
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), virtual_hosts=60) as running:
        yield running


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[RabbitMQ]:
    """A virtual host of the shared broker; a broker of its own for a test that is marked `own_broker`.

    Not one broker that is restarted: RabbitMQ 3.10 fails to declare a quorum queue again after a restart.
    """
    if request.node.get_closest_marker("own_broker"):
        with RabbitMQ(request.getfixturevalue("tmp_path_factory").mktemp("rabbitmq")) as running:
            yield running
    else:
        shared: RabbitMQ = request.getfixturevalue("shared_broker")
        shared.use_next_virtual_host()
        yield shared


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


@pytest.fixture(scope="session")
def context(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build context of the images: the committed files, a model, its labels and the page's recipe."""
    context = tmp_path_factory.mktemp("context")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=clone, check=True, capture_output=True, text=True).stdout
    for name in listed.strip("\0").split("\0"):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(clone / name, context / name, follow_symlinks=False)  # the package links to its four folders
    subprocess.run([sys.executable, "examples/train/flowers.py"], cwd=context, check=True, capture_output=True)
    [recipe] = image_blocks(clone, "toml")
    (context / str(recipe.title)).write_text(recipe.content)
    return context


@pytest.fixture(scope="session")
def base_images(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """The images that the others are built on.

    All are kept for the next run, until how they are made changes or they take too much of the disk.
    """
    stub = clone / "tests" / "support" / "stub_model_server"
    root = clone / ".cache" / "images"
    folder = root / digest([Path(container_images.__file__), stub, Path("/etc/os-release")])
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / "lock"):
        for old in root.iterdir():
            if old.is_dir() and (old != folder or kept_bytes(old) > MAX_KEPT_BYTES):
                subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(old)], check=True)
        folder.mkdir(exist_ok=True)
        images = Images(folder, tmp_path_factory.mktemp("images"))
        images.clean()
        if "localhost/model-server" not in images.names():
            program = tmp_path_factory.mktemp("stub") / "usr" / "bin" / "tensorflow_model_server"
            program.parent.mkdir(parents=True)
            shutil.copy(stub, program)
            images.make_debian()
            images.make_base("python", "python3", "python3-venv")
            images.make_base("model-server", files=program.parents[2])
        yield images
        images.clean()


@pytest.fixture(scope="session")
def images(clone: Path, context: Path, base_images: Images) -> Images:
    """The images of all targets, built by the commands of the pages."""
    for command in image_commands(clone, "docker build"):
        base_images.build(command, context=context, bases=BASES)
    return base_images
