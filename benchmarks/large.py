"""Large arrays there and back over gRPC: a model that gives them back, beside a bare echo of as many bytes.

    python -m benchmarks.large [--megabytes N] [--rounds N]

What our way takes beyond the echo is messages, checks and the model's runtime. Each question is asked by a process of
its own, which has asked a small one before; the two take turns, and the table has medians over the rounds. Speed is the
echo's time by the contestant's, memory the most that a process had.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import grpc
import numpy as np

from benchmarks.echo import METHOD, NO_LIMIT
from benchmarks.processes import Server, free_port
from savedmodel_bakery.client import Client

MODEL = """
import sys
import tensorflow as tf
class Same(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float64, name="x")])
    def serve(self, x):
        return {"y": tf.identity(x)}
module = Same()
tf.saved_model.save(module, sys.argv[1], signatures={"serving_default": module.serve})
"""
SPAWN = multiprocessing.get_context("spawn")


class Asked(NamedTuple):
    """One question: how long it took, and the most memory that the process had that asked it."""

    seconds: float
    peak_bytes: int


def make(values: int) -> bytes:
    """As many float64. Both contestants make them like this, as memory just freed is faster than any other."""
    return np.random.default_rng(0).random(values).tobytes()


def ask_echo(port: int, values: int) -> Asked:
    """Ask the echo for as many float64."""
    call = grpc.insecure_channel(f"127.0.0.1:{port}", NO_LIMIT).unary_unary(METHOD)
    call(b"small")
    content = make(values)
    started = time.perf_counter()
    answer = call(content)
    seconds = time.perf_counter() - started
    return _asked(seconds, is_right=answer == content)


def ask_model(port: int, values: int) -> Asked:
    """Ask the model for as many float64."""
    with Client(f"127.0.0.1:{port}", timeout_s=600) as client:
        client.predict({"x": np.zeros(1)}, model="same")
        array = np.frombuffer(make(values))
        started = time.perf_counter()
        answer = client.predict({"x": array}, model="same")
        seconds = time.perf_counter() - started
    return _asked(seconds, is_right=np.array_equal(array, answer.arrays["y"]))


CONTESTANTS: dict[str, Callable[[int, int], Asked]] = {"bare echo": ask_echo, "embedded server": ask_model}


def _asked(seconds: float, *, is_right: bool) -> Asked:
    if not is_right:
        raise SystemExit("what came back is not what was sent")
    return Asked(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def commands(folder: Path, ports: dict[str, int]) -> dict[str, list[str]]:
    """How the contestants' servers are started."""
    serving = ["-m", "savedmodel_bakery.serving", "--engine=embedded", "--bind_address=127.0.0.1", "--model_name=same"]
    return {
        "bare echo": [sys.executable, "-m", "benchmarks.echo", str(ports["bare echo"])],
        "embedded server": [
            sys.executable,
            *serving,
            f"--port={ports['embedded server']}",
            f"--model_base_path={folder / 'same'}",
        ],
    }


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had (proc(5), VmHWM)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc", str(pid), "status").read_text())
    return int(found[1]) * 1024 if found else 0


@click.command()
@click.option("--megabytes", default=1024, show_default=True, type=click.IntRange(1, 2000), help="Size of the array.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds.")
def main(megabytes: int, rounds: int) -> None:
    """Measure, and print a table."""
    values = megabytes * 2**20 // 8
    ports = {name: free_port() for name in CONTESTANTS}
    found: dict[str, list[Asked]] = {name: [] for name in CONTESTANTS}
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, "-c", MODEL, str(folder / "same" / "1")], check=True, capture_output=True)
        servers = {
            name: opened.enter_context(Server(command, port=ports[name], log=folder / name))
            for name, command in commands(folder, ports).items()
        }
        for server in servers.values():
            server.wait_until_listening()
        empty = {name: peak_bytes(server.pid) for name, server in servers.items()}
        for _ in range(rounds):
            for name, ask in CONTESTANTS.items():
                with SPAWN.Pool(1) as alone:
                    found[name].append(alone.apply(ask, (ports[name], values)))
        peaks = {name: peak_bytes(server.pid) for name, server in servers.items()}
    title = f"{megabytes} MiB there and back"
    click.echo(f"{title:32}{'s':>8}{'GB/s':>8}{'speed':>8}{'client MB':>11}{'server MB':>11}{'at start':>10}")
    for name, rows in found.items():
        seconds = statistics.median(row.seconds for row in rows)
        pairs = zip(found["bare echo"], rows, strict=True)
        speed = statistics.median(bare.seconds / row.seconds for bare, row in pairs)
        client_mb = max(row.peak_bytes for row in rows) / 1e6
        click.echo(
            f"{name:32}{seconds:8.2f}{2 * values * 8 / seconds / 1e9:8.2f}{speed:8.2f}"
            f"{client_mb:11.0f}{peaks[name] / 1e6:11.0f}{empty[name] / 1e6:10.0f}"
        )


if __name__ == "__main__":
    main()
