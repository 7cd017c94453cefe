"""How many threads, and how many processes: the embedded server with each of several settings.

    python -m benchmarks.threads [--only SETTING …] [--callers N …] [--rounds N] [--seconds S]

Ours with `--decode fast` over gRPC. `intra` is --tensorflow_intra_op_parallelism, `inter` is
--tensorflow_inter_op_parallelism, `grpc` is --grpc_max_threads; what isn't named has its default. Several processes
share the callers, each with a model of its own.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from benchmarks import measure, networks, photos, report
from benchmarks.candidates import CACHE, Contestant, Workshop

DEFAULTS = "defaults"
_FLAGS = {
    "intra": "tensorflow_intra_op_parallelism",
    "inter": "tensorflow_inter_op_parallelism",
    "grpc": "grpc_max_threads",
}


def settings(cores: int) -> dict[str, Contestant]:
    """What is compared on a machine of so many cores, by name."""
    threads: list[dict[str, int]] = [
        {},
        {"intra": 1},
        {"intra": cores},
        {"inter": 1},
        {"inter": 2 * cores},
        {"grpc": 1},
        {"grpc": cores},
        {"grpc": 16 * cores},
    ]
    found = {}
    for chosen in threads:
        flags = tuple(f"--{_FLAGS[name]}={number}" for name, number in chosen.items())
        title = ", ".join(f"{name} {number}" for name, number in chosen.items()) or DEFAULTS
        found[title] = Contestant(title, "grpc", "fast", flags=flags)
    for processes in sorted({2, cores} - {1}):
        flags = (f"--{_FLAGS['intra']}={max(1, cores // processes)}",)
        title = f"{processes} processes, intra {max(1, cores // processes)}"
        found[title] = Contestant(title, "grpc", "fast", flags=flags, processes=processes)
    return found


SETTINGS = settings(len(os.sched_getaffinity(0)))


@click.command()
@click.option("--network", type=click.Choice(list(networks.CHOICES)), default="efficientnet-lite0", show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(SETTINGS)), help="Setting; repeatable, else all.")
@click.option("--photos", "sizes", multiple=True, type=click.Choice(list(photos.SIZES)), default=["small"])
@click.option("--callers", multiple=True, type=click.IntRange(1, 256), default=[8], show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.1), default=5.0, show_default=True)
def main(
    network: str, only: tuple[str, ...], sizes: tuple[str, ...], callers: tuple[int, ...], rounds: int, seconds: float
) -> None:
    """Measure, and print Markdown."""
    chosen = {name: SETTINGS[name] for name in SETTINGS if not only or name in (*only, DEFAULTS)}
    course = measure.Course(chosen, sizes, sorted(callers), rounds, seconds, against=DEFAULTS)
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(CACHE, Path(folder), network)
        document = measure.run(course, workshop, lambda line: click.echo(line, err=True))
    click.echo(report.markdown(document))


if __name__ == "__main__":
    main()
