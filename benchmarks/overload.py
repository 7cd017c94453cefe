"""Offer photos of 12 megapixels at multiples of the rate that the embedded server can answer.

    python -m benchmarks.overload [--rounds N] [--seconds S]

Prints a Markdown table and writes overload.json, which `python -m benchmarks.publish` copies into the documentation.
The server has half of the CPUs, the load generator and the probes have the others: what it costs to offer four times
the load does not slow the server down.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks import machine, overload_report, photos
from benchmarks.candidates import CACHE
from benchmarks.generator import Generator
from benchmarks.probes import Probes
from benchmarks.processes import PeakMemory, Tree, on_cpus
from benchmarks.workloads import ModelServer, Ports

PHOTO = "large"
DEADLINE_S = 2.0
LOADS = (1, 2, 4)
CALLERS = 8  # that measure the capacity
SETTLING_S = 5.0
_FLAGS = ("--enable_grpc_healthcheck_service", f"--rest_api_timeout_in_ms={DEADLINE_S * 1000:.0f}")


def run(rounds: int, seconds: float, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure both transports, each with a server of its own.

    In each round, concurrent callers first measure the capacity: photos per second in a closed loop. Then photos are
    offered at each multiple of it.

    Returns:
        The input of `benchmarks.overload_report`, ready for JSON.
    """
    description, rows = machine.describe(), []
    server_cpus, other_cpus = divide(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        photo = folder / f"{PHOTO}.jpg"
        photo.write_bytes(photos.make(PHOTO))
        server = ModelServer("embedded")
        base_path = server.bake(folder)
        for transport in ("gRPC", "REST"):
            with ExitStack() as stack:
                with on_cpus(server_cpus):
                    ports = server.serve(base_path, folder / f"{transport}.log", stack, flags=_FLAGS)
                stack.enter_context(on_cpus(other_cpus))
                generator = stack.enter_context(
                    Generator(
                        protocol=transport.lower(),
                        ports=[ports.grpc if transport == "gRPC" else ports.rest],
                        base_path=str(base_path),
                        photos={PHOTO: photo},
                        log=folder / f"{transport}.generator.log",
                        timeout_s=DEADLINE_S,
                    )
                )
                for number in range(rounds):
                    for row in _measure_round(generator, ports, seconds):
                        rows.append(row | {"transport": transport, "round": number})
                        log(json.dumps(rows[-1]))
    return {
        "kind": "overload",
        "machine": description,
        "rounds": rounds,
        "seconds": seconds,
        "size": photos.SIZES[PHOTO],
        "bytes": len(photos.make(PHOTO)),
        "deadline_s": DEADLINE_S,
        "server_cpus": len(server_cpus),
        "rows": rows,
    }


def divide(cpus: Collection[int]) -> tuple[set[int], set[int]]:
    """Return the CPUs of the server and those of everything else; a single CPU is shared."""
    ordered = sorted(cpus)
    half = len(ordered) // 2
    return set(ordered[half:]), set(ordered[:half] or ordered)


def _measure_round(generator: Generator, ports: Ports, seconds: float) -> list[dict[str, Any]]:
    capacity = _measure(generator, ports, seconds, callers=CALLERS)
    rows = [capacity | {"load": None}]
    for load in LOADS:
        rate_per_s = load * capacity["in_time_per_s"]
        callers = math.ceil(rate_per_s * (DEADLINE_S + 1))  # so that no call is late because of the generator
        rows.append(_measure(generator, ports, seconds, callers=callers, rate_per_s=rate_per_s) | {"load": load})
    return rows


def _measure(
    generator: Generator, ports: Ports, seconds: float, *, callers: int, rate_per_s: float | None = None
) -> dict[str, Any]:
    tree = Tree([ports.pid])
    before_bytes = tree.memory_bytes()
    with Probes(ports.grpc, ports.rest) as probes, PeakMemory(tree) as memory:
        load = generator.load(photo=PHOTO, callers=callers, seconds=seconds, rate_per_s=rate_per_s)
    time.sleep(SETTLING_S)
    elapsed_s, errors = load["elapsed_s"], load["errors"]
    rejected = errors.get("RESOURCE_EXHAUSTED", 0)
    return {
        "offered_per_s": load["requests"] / seconds,
        "in_time_per_s": load["in_time"] / elapsed_s,
        "rejected_per_s": rejected / elapsed_s,
        "too_late_per_s": (load["answered"] - load["in_time"] + sum(errors.values()) - rejected) / elapsed_s,
        "errors": errors,
        "messages": load["messages"],
        "late": load["late"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
        "generator_cpu_percent": load["client_cpu_percent"],
        "probes_p99_ms": probes.p99_ms(),
        "probes_failed": probes.failed,
        "before_mb": before_bytes / 1e6,
        "peak_mb": memory.peak_bytes / 1e6,
        "after_mb": tree.memory_bytes() / 1e6,
    }


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Turns of each load.")
@click.option("--seconds", type=click.FloatRange(1), default=15.0, show_default=True, help="Duration of a turn.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default=CACHE / "results" / "overload.json",
    help="File for the results.  [default: .cache/bench/results/overload.json]", show_default=False,
)  # fmt: skip
def main(rounds: int, seconds: float, out: Path) -> None:
    """Offer photos at once, twice and four times the server's capacity."""
    document = run(rounds, seconds, lambda line: click.echo(line, err=True))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1))
    click.echo(overload_report.markdown(document))
    click.echo(out, err=True)


if __name__ == "__main__":
    main()
