"""Who is compared: how each is started, and how it is asked."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks import networks, triton
from benchmarks.generator import Generator
from benchmarks.processes import DidNotStart, Server, free_port
from benchmarks.targets import MODEL

CACHE = Path(__file__).parent.parent / ".cache" / "bench"

_PEERS = Path(__file__).parent / "peers"
_EMBEDDED = (sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", "--bind_address=127.0.0.1")
_REAL = "tensorflow_model_server"


class LeftOut(Exception):  # noqa: N818 - the name says what happened
    """A contestant that can't take part on this machine; the text says why."""


@dataclass(frozen=True)
class Contestant:
    """One way of serving the network.

    Attributes:
        what: in a few words, for a legend.
        asked: see `benchmarks.callees.open_callees`.
        servable: `baseline`, or ours by its `--decode`: `fast` or `exact`; None where it reads the Keras file.
        peer: a program in `benchmarks/peers`, run in the environment `web`.
        real: whether tensorflow_model_server serves, rather than the embedded server.
        flags: of the server, beside the usual.
        processes: servers that share the load.
    """

    what: str
    asked: str
    servable: str | None = None
    peer: str | None = None
    real: bool = False
    flags: tuple[str, ...] = ()
    processes: int = 1


CONTESTANTS = {
    "baseline": Contestant("the export everybody writes, embedded server, gRPC", "grpc", "baseline"),
    "ours-fast": Contestant("ours, --decode fast, embedded server, gRPC", "grpc", "fast"),
    "ours-exact": Contestant("ours, --decode exact, embedded server, gRPC", "grpc", "exact"),
    "ours-fast-rest": Contestant("ours, --decode fast, embedded server, REST", "rest", "fast"),
    "direct": Contestant("ours, --decode fast, called by threads of one process", "direct", "fast"),
    "tfs-baseline": Contestant(f"the export everybody writes, {_REAL}, gRPC", "grpc", "baseline", real=True),
    "tfs-ours-fast": Contestant(f"ours, --decode fast, {_REAL}, gRPC", "grpc", "fast", real=True),
    "fastapi-predict": Contestant("FastAPI, Pillow, model.predict", "json", peer="fastapi_predict.py"),
    "fastapi-function": Contestant("FastAPI, a tf.function", "json", peer="fastapi_function.py"),
    "litserve": Contestant("LitServe 0.2.19, batches up to 8", "json", peer="litserve_batched.py"),
    "triton": Contestant("Triton 2.51, Python backend, batches up to 8", "triton"),
}


@dataclass
class Workshop:
    """Where contestants are made.

    Attributes:
        cache: environments and networks, which stay.
        folder: servables, photos and logs of this run.
        network: a name in `networks.CHOICES`.
    """

    cache: Path
    folder: Path
    network: str
    _servables: dict[str, Path] = field(default_factory=dict)

    @property
    def network_folder(self) -> Path:
        """The network's folder, made where need be."""
        path = self.cache / "models" / self.network
        networks.prepare(self.network, path)
        return path

    def servable(self, kind: str) -> Path:
        """Base path of a SavedModel, made when it is first asked for."""
        if kind not in self._servables:
            base_path = self.folder / "servables" / kind
            if kind == "baseline":
                networks.export_baseline(self.network_folder, base_path)
            else:
                networks.bake(self.network, self.network_folder, base_path, decode=kind)
            self._servables[kind] = base_path
        return self._servables[kind]

    def environment(self, name: str) -> Path:
        """A peer's virtual environment.

        Raises:
            LeftOut: it has not been made.
        """
        path = self.cache / name
        if not (path / ".installed").is_file():
            raise LeftOut(f"its environment is not there; make bench-peers makes {path}")
        return path


@dataclass(frozen=True)
class Running:
    """A contestant that answers.

    Attributes:
        name: of the contestant.
        pids: what its CPU time and memory are those of, with their descendants.
        generator: what puts load on it.
    """

    name: str
    pids: list[int]
    generator: Generator


@contextmanager
def start(name: str, contestant: Contestant, workshop: Workshop, photos: dict[str, Path]) -> Iterator[Running]:
    """Start a contestant, ask it about each photo once, and end it with the block.

    Raises:
        LeftOut: it doesn't work here.
    """
    servable = workshop.servable(contestant.servable) if contestant.servable else Path()
    with ExitStack() as stack:
        launch = partial(_launch, name, contestant, workshop, servable)
        try:
            ports, servers = [], []
            for number in range(contestant.processes if contestant.asked != "direct" else 0):
                ports.append(free_port())
                servers.append(stack.enter_context(launch(number, ports[-1])))
            for server in servers:
                server.wait_until_listening()
            log = workshop.folder / f"{name}.generator.log"
            generator = stack.enter_context(
                Generator(asked=contestant.asked, ports=ports, servable=str(servable), photos=photos, log=log)
            )
        except (DidNotStart, OSError) as error:
            raise LeftOut(f"it does not start: {error}") from error
        pids = [server.pid for server in servers] or [generator.pid]
        yield Running(name, pids, generator)


def _launch(name: str, contestant: Contestant, workshop: Workshop, servable: Path, number: int, port: int) -> Server:
    log = workshop.folder / f"{name}.{number}.log"
    variables = {"BENCH_NETWORK": str(workshop.network_folder), "TF_CPP_MIN_LOG_LEVEL": "2"}
    if contestant.servable:
        return Server(_serving(contestant, servable, port), port=port, log=log, environment=variables)
    if contestant.peer:
        python = workshop.environment("web") / "bin" / "python"
        return Server(
            [str(python), str(_PEERS / contestant.peer), str(port)], port=port, log=log, environment=variables
        )
    environment = workshop.environment("triton")
    folder = workshop.folder / f"{name}.{number}"
    shutil.rmtree(folder, ignore_errors=True)
    command = triton.command(environment, folder, http_port=port, free_ports=(free_port(), free_port()))
    return Server(command, port=port, log=log, environment={**variables, **triton.variables(environment)})


def _serving(contestant: Contestant, servable: Path, port: int) -> list[str]:
    program: tuple[str, ...] = _EMBEDDED
    if contestant.real:
        found = shutil.which(_REAL)
        if not found:
            raise LeftOut(f"there is no {_REAL} on the PATH")
        # By default it refuses calls beyond four times the number of CPUs, where the embedded server has them wait.
        program = (found, f"--grpc_max_threads={max(64, 4 * (os.cpu_count() or 1))}")
    ports = (f"--port={port}",) if contestant.asked == "grpc" else (f"--port={free_port()}", f"--rest_api_port={port}")
    return [*program, *ports, f"--model_name={MODEL}", f"--model_base_path={servable}", *contestant.flags]
