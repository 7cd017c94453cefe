"""Tiny requests: what a call costs where the model costs nothing.

    python -m benchmarks.tiny [--calls N] [--rounds N]

Serves half_plus_two with the embedded server, and with tensorflow_model_server too where that is on the PATH. Servers
and transports take turns, so that what else the machine does falls on all of them; the table has medians over the
rounds. Callers share the machine with the server.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click
import grpc
import numpy as np

from benchmarks.processes import Server, Tree, free_port
from savedmodel_bakery.wire import schema, tensors

MODEL = """
import sys
import tensorflow as tf
class HalfPlusTwo(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x):
        return x * 0.5 + 2.0
module = HalfPlusTwo()
tf.saved_model.save(module, sys.argv[1], signatures={"serving_default": module.serve})
"""
CALLERS = 16
WARM_UP_CALLS = 200


class Row(NamedTuple):
    """Figures of one round: milliseconds, calls a second, milliseconds of the server's CPU a call."""

    p50_ms: float
    p99_ms: float
    calls_per_s: float
    cpu_ms: float


@dataclass(frozen=True)
class Ports:
    """Where a server listens, and what uses CPU there."""

    grpc: int
    rest: int
    tree: Tree


@contextmanager
def serve(command: list[str], base_path: Path, log: Path) -> Iterator[Ports]:
    """A server process, until the block ends."""
    port, rest_api_port = free_port(), free_port()
    ports = (f"--port={port}", f"--rest_api_port={rest_api_port}")
    flags = (*ports, "--model_name=tiny", f"--model_base_path={base_path}", "--grpc_max_threads=64")
    with Server([*command, *flags], port=rest_api_port, log=log) as server:
        server.wait_until_listening()
        yield Ports(port, rest_api_port, Tree([server.pid]))


Caller = Callable[[], object]


def grpc_caller(server: Ports, opened: ExitStack) -> Caller:
    """A call over a connection of its own."""
    request = schema.PredictRequest()
    request.model_spec.name = "tiny"
    tensors.encode_tensor(np.array([1, 2, 5], np.float32), packed=False, into=request.inputs["x"])
    data = request.SerializeToString()
    options = [("grpc.use_local_subchannel_pool", 1)]
    channel = opened.enter_context(grpc.insecure_channel(f"127.0.0.1:{server.grpc}", options))
    call = channel.unary_unary(schema.METHODS["Predict"].path)
    return lambda: call(data)


def rest_caller(server: Ports, opened: ExitStack) -> Caller:
    """A call over a connection of its own, with no library that would cost more than the server."""
    body = b'{"instances": [1.0, 2.0, 5.0]}'
    head = f"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = opened.enter_context(socket.create_connection(("127.0.0.1", server.rest)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call() -> None:
        connection.sendall(head.encode() + body)
        answer = b""
        while not answer.endswith(b"\n}"):  # where the JSON ends
            answer += connection.recv(65536)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a call failed: {answer!r}")

    return call


def measure(server: Ports, make_caller: Callable[[Ports, ExitStack], Caller], calls: int) -> Row:
    """One round: calls one after the other, then as many by all callers at once."""
    with ExitStack() as opened:
        call = make_caller(server, opened)
        for _ in range(WARM_UP_CALLS):
            call()
        took = []
        cpu_before = server.tree.cpu_s()
        for _ in range(calls):
            started = time.perf_counter()
            call()
            took.append(time.perf_counter() - started)
        used_s = server.tree.cpu_s() - cpu_before
    with ExitStack() as opened, ThreadPoolExecutor(CALLERS) as pool:
        callers = [make_caller(server, opened) for _ in range(CALLERS)]
        started = time.perf_counter()
        list(pool.map(lambda caller: [caller() for _ in range(calls // CALLERS)], callers))
        seconds = time.perf_counter() - started
    percentiles = statistics.quantiles(took, n=100)
    done = calls // CALLERS * CALLERS
    return Row(percentiles[49] * 1e3, percentiles[98] * 1e3, done / seconds, used_s / calls * 1e3)


@click.command()
@click.option("--calls", default=2000, show_default=True, type=click.IntRange(100), help="Calls a round.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds.")
def main(calls: int, rounds: int) -> None:
    """Measure, and print a table."""
    commands = {
        "embedded": [sys.executable, "-m", "savedmodel_bakery.serving", "--engine=embedded", "--bind_address=127.0.0.1"]
    }
    if real := shutil.which("tensorflow_model_server"):
        commands["tensorflow_model_server"] = [real]
    found: dict[tuple[str, str], list[Row]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        base_path = Path(folder, "tiny")
        subprocess.run([sys.executable, "-c", MODEL, str(base_path / "1")], check=True, capture_output=True)
        servers = {
            name: stack.enter_context(serve(command, base_path, Path(folder, name)))
            for name, command in commands.items()
        }
        for _ in range(rounds):
            for name, server in servers.items():
                for transport, make_caller in (("gRPC", grpc_caller), ("REST", rest_caller)):
                    found.setdefault((name, transport), []).append(measure(server, make_caller, calls))
    click.echo(f"{'':32}{'p50 ms':>9}{'p99 ms':>9}{f'calls/s at {CALLERS}':>16}{'CPU ms/call':>13}")
    for (name, transport), rows in found.items():
        median = Row(*(statistics.median(column) for column in zip(*rows, strict=True)))
        click.echo(f"{name + ' ' + transport:32}{median[0]:9.2f}{median[1]:9.2f}{median[2]:16.0f}{median[3]:13.2f}")
        real_rows = found.get(("tensorflow_model_server", transport))
        if real_rows and name == "embedded":
            ratio = statistics.median(mine.p50_ms / its.p50_ms for mine, its in zip(rows, real_rows, strict=True))
            click.echo(f"{'  p50 against the real server':32}{ratio:8.2f}x")


if __name__ == "__main__":
    main()
