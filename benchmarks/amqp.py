"""Questions by message: what RabbitMQ between client and model costs, against gRPC from client to server.

    make bench-amqp
    python -m benchmarks.amqp [--calls N] [--rounds N]

half_plus_two is asked by the client's own `predict`: of the embedded server over gRPC; of a worker that holds the
model; and of a worker that stands before that server. All are up all the time and take turns, so that what else the
machine does falls on all of them; the table has medians over the rounds, and medians of the ratios to gRPC in the same
round. CPU is that of the processes that answer (server, worker, broker), without the caller's. The broker is a RabbitMQ
of its own; `make system-deps` installs the package.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from amqp_worker import WorkerProcess
from rabbitmq import SERVER, RabbitMQ

from benchmarks.processes import Tree
from benchmarks.tiny import MODEL, serve
from savedmodel_bakery.client import Client

CALLERS = 16
WARM_UP_CALLS = 100


class Row(NamedTuple):
    """Figures of one round: milliseconds, calls a second, milliseconds of CPU a call."""

    p50_ms: float
    p99_ms: float
    calls_per_s: float
    cpu_ms: float


class Way(NamedTuple):
    """How the model is asked: what makes a client, and the processes that answer."""

    connect: Callable[[], Client]
    trees: Sequence[Tree]

    def cpu_s(self) -> float:
        """CPU time that these have used."""
        return sum(tree.cpu_s() for tree in self.trees)


def measure(way: Way, calls: int) -> Row:
    """One round: calls one after the other, then as many by all callers at once."""
    inputs = {"x": np.array([1, 2, 5], np.float32)}
    with ExitStack() as opened, ThreadPoolExecutor(CALLERS) as pool:
        clients = [opened.enter_context(way.connect()) for _ in range(CALLERS)]
        for client in clients:
            client.predict(inputs)
        for _ in range(WARM_UP_CALLS):
            clients[0].predict(inputs)
        took, cpu_before_s = [], way.cpu_s()
        for _ in range(calls):
            started = time.perf_counter()
            clients[0].predict(inputs)
            took.append(time.perf_counter() - started)
        used_s = way.cpu_s() - cpu_before_s
        started = time.perf_counter()
        list(pool.map(lambda client: [client.predict(inputs) for _ in range(calls // CALLERS)], clients))
        seconds = time.perf_counter() - started
    percentiles = statistics.quantiles(took, n=100)
    return Row(percentiles[49] * 1e3, percentiles[98] * 1e3, calls // CALLERS * CALLERS / seconds, used_s / calls * 1e3)


def start(folder: Path, opened: ExitStack) -> dict[str, Way]:
    """Start everything, and give the ways there are."""
    base_path = folder / "tiny"
    subprocess.run([sys.executable, "-c", MODEL, str(base_path / "1")], check=True, capture_output=True)
    command = [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", "--bind_address=127.0.0.1"]
    server = opened.enter_context(serve(command, base_path, folder / "server"))
    broker = opened.enter_context(RabbitMQ(folder / "rabbitmq"))
    model = ("--model_name", "tiny", "--model_base_path", str(base_path), "--queue", "own")
    before = ("--server", f"127.0.0.1:{server.grpc}", "--queue", "before")
    own, front = (
        opened.enter_context(WorkerProcess(broker.url(), *options, log=folder / options[-1]))
        for options in (model, before)
    )

    broker_tree = Tree([broker.pid])

    def by_message(queue: str) -> Callable[[], Client]:
        return lambda: Client(broker.url(), transport="amqp", queue=queue, model="tiny")

    return {
        "gRPC": Way(lambda: Client(port=server.grpc, model="tiny"), [server.tree]),
        "AMQP, the worker's own model": Way(by_message("own"), [Tree([own.process.pid]), broker_tree]),
        "AMQP, worker before the server": Way(
            by_message("before"), [Tree([front.process.pid]), broker_tree, server.tree]
        ),
    }


@click.command()
@click.option("--calls", default=1000, show_default=True, type=click.IntRange(100), help="Calls a round.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds.")
def main(calls: int, rounds: int) -> None:
    """Measure, and print a table."""
    if not Path(SERVER).exists():
        raise click.ClickException("RabbitMQ is not installed here; `make system-deps` installs it, as root")
    found: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        ways = start(Path(folder), opened)
        for _ in range(rounds):
            for name, way in ways.items():
                found.setdefault(name, []).append(measure(way, calls))
    click.echo(f"{'':34}{'p50 ms':>9}{'p99 ms':>9}{f'calls/s at {CALLERS}':>16}{'CPU ms/call':>13}")
    for name, rows in found.items():
        median = Row(*(statistics.median(column) for column in zip(*rows, strict=True)))
        click.echo(f"{name:34}{median[0]:9.2f}{median[1]:9.2f}{median[2]:16.0f}{median[3]:13.2f}")
        if name != "gRPC":
            ratios = [
                [its / plain for its, plain in zip(*pair, strict=True)]
                for pair in zip(rows, found["gRPC"], strict=True)
            ]
            times = [statistics.median(column) for column in zip(*ratios, strict=True)]
            click.echo(f"{'  against gRPC':34}{times[0]:8.1f}x{times[1]:8.1f}x{times[2]:15.2f}x{times[3]:12.1f}x")


if __name__ == "__main__":
    main()
