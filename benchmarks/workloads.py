"""The workloads of `benchmarks.calls`: starts servers and returns the ways to call them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks import echo, photos
from benchmarks.processes import Server, Tree, free_port
from benchmarks.targets import MODEL, open_model_server
from savedmodel_bakery import AmqpClient, Client
from savedmodel_bakery.answers.images import encode_images
from savedmodel_bakery.client.load.generator import SendCall

CLONE = Path(__file__).parent.parent
TIMEOUT_S = 600.0
TINY = {"x": np.array([1, 2, 5], np.float32)}
FUNCTIONS = """
import sys
import tensorflow as tf
class Functions(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def half_plus_two(self, x):
        return {"y": x * 0.5 + 2.0}
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64, name="x")])
    def same(self, x):
        return {"y": tf.identity(x)}
module = Functions()
tf.saved_model.save(module, sys.argv[1], {"serving_default": module.half_plus_two, "same": module.same})
"""


@dataclass(frozen=True)
class ModelServer:
    """A model server: the embedded server of a checkout, or a program with tensorflow_model_server's flags.

    Attributes:
        name: shown in the table.
        command: starts the server; flags are appended.
        checkout: working directory, where `python -m exporter` runs too.
    """

    name: str
    command: tuple[str, ...] = (sys.executable, "-m", "serving", "--engine=embedded", "--bind_address=127.0.0.1")
    checkout: Path = CLONE

    @classmethod
    def parse(cls, text: str) -> ModelServer:
        """Parse NAME=DIR (a checkout) or NAME=PROGRAM.

        Raises:
            ValueError: there is no such folder or program.
        """
        name, _, place = text.partition("=")
        if name and place and Path(place, "serving").is_dir():
            return cls(name, checkout=Path(place).resolve())
        if name and (program := shutil.which(place)):
            return cls(name, (program, "--grpc_max_threads=64"))
        raise ValueError(f"invalid server {text!r}: must be NAME=DIR, a checkout, or NAME=PROGRAM, a model server")

    def serve(self, base_path: Path, log: Path, stack: ExitStack, *, flags: Sequence[str] = ()) -> Ports:
        """Start a server that ends with the stack, and return when it accepts connections."""
        port, rest_api_port = free_port(), free_port()
        ports = [f"--port={port}", f"--rest_api_port={rest_api_port}"]
        command = [*self.command, *ports, f"--model_name={MODEL}", f"--model_base_path={base_path}", *flags]
        server = stack.enter_context(Server(command, port=rest_api_port, log=log, folder=self.checkout))
        server.wait_until_listening()
        return Ports(port, rest_api_port, server.pid)

    def bake(self, root: Path) -> Path:
        """Bake EfficientNet-Lite0 with the checkout's exporter and return the base path."""
        _run("-m", "exporter", "bake", "--model", "efficientnet-lite0", "--out", str(root), folder=self.checkout)
        return root / "efficientnet_lite0"


class Ports(NamedTuple):
    """A running model server."""

    grpc: int
    rest: int
    pid: int


@dataclass(frozen=True)
class Way:
    """One way to call a model.

    Attributes:
        name: shown in the table.
        open_caller: see `client.load.generator.generate`.
        servers: the processes whose CPU time is measured.
    """

    name: str
    open_caller: Callable[[], AbstractContextManager[SendCall]]
    servers: Tree


@dataclass(frozen=True)
class Settings:
    """What workloads can vary.

    Attributes:
        servers: the servers to compare.
        photo: a name in `photos.SIZES`.
        megabytes: size of the array, in MiB.
    """

    servers: Sequence[ModelServer]
    photo: str
    megabytes: int


Groups = dict[str, list[Way]]
"""Ways by title; the ways of a group do the same and are compared with the first."""


def tiny(settings: Settings, folder: Path, stack: ExitStack) -> Groups:
    """half_plus_two on three numbers, over gRPC and REST."""
    base_path = _save_functions(folder)
    servers = {one.name: one.serve(base_path, folder / one.name, stack) for one in settings.servers}
    return _over_grpc_and_rest(servers, TINY)


def photo(settings: Settings, folder: Path, stack: ExitStack) -> Groups:
    """A JPEG photo over gRPC and REST; each server's checkout bakes and serves EfficientNet-Lite0."""
    servers = {
        one.name: one.serve(one.bake(folder / f"{one.name}.models"), folder / one.name, stack)
        for one in settings.servers
    }
    return _over_grpc_and_rest(servers, encode_images([photos.make(settings.photo)]))


def arrays(settings: Settings, folder: Path, stack: ExitStack) -> Groups:
    """A large float64 array there and back over gRPC, beside a bare gRPC echo of as many bytes."""
    inputs = {"x": np.random.default_rng(0).random(settings.megabytes * 2**20 // 8)}
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.echo", str(port)]
    bare = stack.enter_context(Server(command, port=port, log=folder / "echo", folder=CLONE))
    bare.wait_until_listening()
    ways = [Way("bare echo", lambda: echo.open_caller(port, inputs["x"].tobytes()), Tree([bare.pid]))]
    base_path = _save_functions(folder)
    for one in settings.servers:
        server = one.serve(base_path, folder / one.name, stack)
        ways.append(Way(one.name, client_caller(inputs, signature="same", port=server.grpc), Tree([server.pid])))
    return {f"{settings.megabytes} MiB,": ways}


def amqp(settings: Settings, folder: Path, stack: ExitStack) -> Groups:
    """half_plus_two over gRPC, to an AMQP worker with its own model, and to an AMQP worker in front of the server."""
    sys.path.append(str(CLONE / "tests" / "support"))
    from amqp_worker import WorkerProcess
    from rabbitmq import SERVER, RabbitMQ

    if not Path(SERVER).exists():
        raise click.ClickException("RabbitMQ is not installed; as root, `make system-deps` installs it")
    base_path = _save_functions(folder)
    server = settings.servers[-1].serve(base_path, folder / "server", stack)
    broker = stack.enter_context(RabbitMQ(folder / "rabbitmq"))

    def start_worker(queue: str, *options: str) -> tuple[Callable[[], AbstractContextManager[SendCall]], int]:
        log = folder / f"{queue}.log"
        worker = stack.enter_context(WorkerProcess(broker.url(), *options, "--queue", queue, log=log))
        return client_caller(TINY, client_class=AmqpClient, target=broker.url(), queue=queue), worker.process.pid

    own, own_pid = start_worker("own", "--model_name", MODEL, "--model_base_path", str(base_path))
    front, front_pid = start_worker("front", "--server", f"127.0.0.1:{server.grpc}")
    return {
        "": [
            Way("gRPC", client_caller(TINY, port=server.grpc), Tree([server.pid])),
            Way("AMQP, worker with its own model", own, Tree([own_pid, broker.pid])),
            Way("AMQP, worker in front of the server", front, Tree([front_pid, broker.pid, server.pid])),
        ]
    }


def _over_grpc_and_rest(servers: Mapping[str, Ports], inputs: Mapping[str, Any]) -> Groups:
    groups: Groups = {"gRPC": [], "REST": []}
    for name, server in servers.items():
        for title, port in (("gRPC", server.grpc), ("REST", server.rest)):
            target, _ = open_model_server(title.lower(), [port], inputs)
            groups[title].append(Way(name, target.open_caller, Tree([server.pid])))
    return groups


def client_caller(
    inputs: Mapping[str, Any],
    *,
    signature: str = "serving_default",
    client_class: type[Client | AmqpClient] = Client,
    **options: Any,
) -> Callable[[], AbstractContextManager[SendCall]]:
    """Return callers that use the public client, as a user would; `options` are its arguments."""

    @contextmanager
    def open_caller() -> Iterator[SendCall]:
        with client_class(**{"model": MODEL, "timeout_s": TIMEOUT_S, **options}) as client:

            def call(_: int) -> None:
                client.predict(inputs, signature=signature)

            yield call

    return open_caller


def _save_functions(folder: Path) -> Path:
    """Save a model with the signatures `serving_default` (half plus two) and `same`; return its base path."""
    _run("-c", FUNCTIONS, str(folder / "functions" / "1"), folder=CLONE)
    return folder / "functions"


def _run(*arguments: str, folder: Path) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)
