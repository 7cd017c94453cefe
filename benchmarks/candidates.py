"""The candidates of the comparison: how each is started and called."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from benchmarks import networks, photos, triton
from benchmarks.generator import Generator
from benchmarks.processes import Server, ServerStartError, free_port
from benchmarks.targets import MODEL

CACHE = Path(__file__).parent.parent / ".cache" / "bench"

_PEERS = Path(__file__).parent / "peers"
_EMBEDDED = (sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", "--bind_address=127.0.0.1")
_REAL = "tensorflow_model_server"


class CandidateSkippedError(Exception):
    """A candidate cannot run on this machine; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """One way to serve the network.

    Attributes:
        title: a short description for the legend.
        protocol: see `benchmarks.targets.open_targets`.
        servable: `baseline`, or a name in `Workshop.bakes`; None if the Keras file is served.
        peer: a program in `benchmarks/peers`, run in the environment `web`.
        real: whether tensorflow_model_server serves instead of the embedded server.
        flags: further flags of the server.
        variables: further environment variables of the server.
        processes: servers that share the load.
        against: the candidate on the same server that it is compared with; None for the default.
    """

    title: str
    protocol: str
    servable: str | None = None
    peer: str | None = None
    real: bool = False
    flags: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    processes: int = 1
    against: str | None = None


BAKES = {
    "fast": ("--decode", "fast"),
    "exact": ("--decode", "exact"),
    "int8": ("--decode", "fast", "--precision", "int8", "--calibration", "{calibration}", "--min-agreement", "0"),
}
"""Options of our bakes; {calibration} is a folder of photos."""


def _on_real_server(title: str, servable: str) -> Candidate:
    return Candidate(f"{title}, {_REAL}, gRPC", "grpc", servable, real=True, against="tfs-baseline")


CANDIDATES = {
    "baseline": Candidate(
        "a common hand-written export, embedded server with TensorFlow's memory pool, gRPC", "grpc", "baseline",
        variables=(("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "0"),),
    ),
    "baseline-embedded": Candidate("a common hand-written export, embedded server, gRPC", "grpc", "baseline"),
    "ours-fast": Candidate("ours, --decode fast, embedded server, gRPC", "grpc", "fast"),
    "ours-exact": Candidate("ours, --decode exact, embedded server, gRPC", "grpc", "exact"),
    "ours-int8": Candidate("ours, --precision int8 --decode fast, embedded server, gRPC", "grpc", "int8"),
    "ours-fast-rest": Candidate("ours, --decode fast, embedded server, REST", "rest", "fast"),
    "direct": Candidate("ours, --decode fast, called by threads of one process", "direct", "fast"),
    "tfs-baseline": _on_real_server("a common hand-written export", "baseline"),
    "tfs-ours-fast": _on_real_server("ours, --decode fast", "fast"),
    "tfs-ours-int8": _on_real_server("ours, --precision int8 --decode fast", "int8"),
    "fastapi-predict": Candidate("FastAPI, Pillow, model.predict", "json", peer="fastapi_predict.py"),
    "fastapi-function": Candidate("FastAPI, a tf.function", "json", peer="fastapi_function.py"),
    "litserve": Candidate("LitServe 0.2.19, batches up to 8", "json", peer="litserve_batched.py"),
    "triton": Candidate("Triton 2.51, Python backend, batches up to 8", "triton"),
}  # fmt: skip


def results_folder(out: Path | None, name: str) -> Path:
    """Make the folder for the results: `out`, or an empty one in the cache.

    Returns:
        The absolute path, because servers need one.

    Raises:
        click.UsageError: `out` is not empty.
    """
    if out is None:
        shutil.rmtree(CACHE / "results" / name, ignore_errors=True)
    elif out.exists() and any(out.iterdir()):
        raise click.UsageError(f"{out} is not empty; --out must be an empty or new folder")
    folder = (out or CACHE / "results" / name).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class Workshop:
    """Makes and keeps what candidates need.

    Attributes:
        cache: environments and networks, kept between runs.
        folder: servables, photos and logs of this run.
        network: a name in `networks.CHOICES`.
        bakes: options of our bakes by name; see `BAKES`.
    """

    cache: Path
    folder: Path
    network: str
    bakes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: BAKES)
    _servables: dict[str, Path] = field(default_factory=dict)

    @property
    def network_folder(self) -> Path:
        """The network's folder, written if it is missing."""
        path = self.cache / "models" / self.network
        networks.prepare(self.network, path)
        return path

    def servable(self, name: str) -> Path:
        """Return the base path of a SavedModel, made on first use; see `Candidate.servable` for the names."""
        if name not in self._servables:
            base_path = self.folder / "servables" / name
            if name == "baseline":
                networks.export_baseline(self.network_folder, base_path)
            else:
                calibration = self.folder / "calibration"
                if not calibration.exists():
                    photos.write_calibration(calibration)
                options = [option.format(calibration=calibration) for option in self.bakes[name]]
                networks.bake(self.network, self.network_folder, base_path, options=options)
            self._servables[name] = base_path
        return self._servables[name]

    def agreement(self, name: str) -> float | None:
        """Return the share of photos for which a SavedModel in int8 has the label of float32; None for others."""
        if name not in self._servables or not networks.read_description(self.network_folder).is_trained:
            return None
        report = self._servables[name] / "1" / "assets.extra" / "parity.json"
        values = json.loads(report.read_text()) if report.is_file() else {}
        agreement: float | None = values.get("int8", {}).get("agreement")
        return agreement

    def environment(self, name: str) -> Path:
        """Return the virtual environment of a peer.

        Raises:
            CandidateSkippedError: it does not exist.
        """
        path = self.cache / name
        if not (path / ".installed").is_file():
            raise CandidateSkippedError(f"its environment {path} is missing; make bench-peers makes it")
        return path


@dataclass(frozen=True)
class Running:
    """A candidate that is ready.

    Attributes:
        name: the name of the candidate.
        pids: the processes whose CPU time and memory are measured, with their descendants.
        generator: the load generator connected to it.
    """

    name: str
    pids: list[int]
    generator: Generator


@contextmanager
def start(name: str, candidate: Candidate, workshop: Workshop, files: dict[str, Path]) -> Iterator[Running]:
    """Start a candidate, send each photo once, and end the candidate with the block.

    Raises:
        CandidateSkippedError: it does not work on this machine.
    """
    base_path = workshop.servable(candidate.servable) if candidate.servable else Path()
    with ExitStack() as stack:
        launch = partial(_launch, name, candidate, workshop, base_path)
        try:
            ports, servers = [], []
            for number in range(candidate.processes if candidate.protocol != "direct" else 0):
                ports.append(free_port())
                servers.append(stack.enter_context(launch(number, ports[-1])))
            for server in servers:
                server.wait_until_listening()
            log = workshop.folder / f"{name}.generator.log"
            generator = stack.enter_context(
                Generator(protocol=candidate.protocol, ports=ports, base_path=str(base_path), photos=files, log=log)
            )
        except (ServerStartError, OSError) as error:
            raise CandidateSkippedError(f"it does not start: {error}") from error
        pids = [server.pid for server in servers] or [generator.pid]
        yield Running(name, pids, generator)


def _launch(name: str, candidate: Candidate, workshop: Workshop, base_path: Path, number: int, port: int) -> Server:
    log = workshop.folder / f"{name}.{number}.log"
    variables = {"BENCH_NETWORK": str(workshop.network_folder), "TF_CPP_MIN_LOG_LEVEL": "2"}
    variables.update(candidate.variables)
    if candidate.servable:
        return Server(_serving(candidate, base_path, port), port=port, log=log, environment=variables)
    if candidate.peer:
        python = workshop.environment("web") / "bin" / "python"
        return Server([str(python), str(_PEERS / candidate.peer), str(port)], port=port, log=log, environment=variables)
    environment = workshop.environment("triton")
    folder = workshop.folder / f"{name}.{number}"
    shutil.rmtree(folder, ignore_errors=True)
    triton.write_classifier(folder / "repository")
    ports = (port, free_port(), free_port())
    command = triton.command(environment, folder / "repository", folder / "backends", ports=ports)
    return Server(command, port=port, log=log, environment={**variables, **triton.variables(environment)})


def _serving(candidate: Candidate, base_path: Path, port: int) -> list[str]:
    program: tuple[str, ...] = _EMBEDDED
    if candidate.real:
        path = shutil.which(_REAL)
        if not path:
            raise CandidateSkippedError(f"{_REAL} is not on the PATH")
        # By default it rejects concurrent calls beyond four per CPU; in the embedded server they wait.
        program = (path, f"--grpc_max_threads={max(64, 4 * (os.cpu_count() or 1))}")
    ports = (
        (f"--port={port}",) if candidate.protocol == "grpc" else (f"--port={free_port()}", f"--rest_api_port={port}")
    )
    return [*program, *ports, f"--model_name={MODEL}", f"--model_base_path={base_path}", *candidate.flags]
