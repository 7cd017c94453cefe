"""Measure what a call costs beside the model, and compare the servers of several checkouts.

    python -m benchmarks.calls [tiny|photo|arrays|amqp|pipelines …] [--server NAME=DIR …]

All servers of a workload run at the same time and take turns, so that other load on the machine affects all of them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks import photos, workloads
from benchmarks.pipelines import pipelines
from benchmarks.workloads import Groups, ModelServer, Settings, Way
from savedmodel_bakery.client.load import report
from savedmodel_bakery.client.load.generator import Plan, generate


class Row(NamedTuple):
    """Figures of one round; CPU time is that of the servers."""

    p50_ms: float
    p99_ms: float
    calls_per_s: float
    cpu_ms: float


class Workload(NamedTuple):
    """How to call, and by default how often per round and by how many concurrent callers."""

    start: Callable[[Settings, Path, ExitStack], Groups]
    calls: int
    callers: int


WORKLOADS = {
    "tiny": Workload(workloads.tiny, 2000, 16),
    "photo": Workload(workloads.photo, 100, 8),
    "arrays": Workload(workloads.arrays, 1, 1),
    "amqp": Workload(workloads.amqp, 1000, 16),
    "pipelines": Workload(pipelines, 200, 8),
}


def measure(way: Way, calls: int, callers: int) -> Row:
    """Make calls one after the other, then as many by concurrent callers."""
    before_s = way.servers.cpu_s()
    alone = _load(way, 1, calls)
    cpu_s = way.servers.cpu_s() - before_s
    together = _load(way, callers, calls) if callers > 1 else alone
    return Row(alone["p50_ms"], alone["p99_ms"], together["requests_per_s"], cpu_s / (calls + 1) * 1e3)


def _load(way: Way, callers: int, calls: int) -> dict[str, float]:
    load = generate(way.open_caller, Plan(callers, requests=calls))
    if load.errors:
        raise click.ClickException(f"{way.name}: {load.errors} {load.messages}")
    return report.summary(load, images=None)


def table(title: str, callers: int, groups: dict[str, dict[str, list[Row]]]) -> str:
    """A Markdown table of medians; ratios are medians (least–most) of the ratios to the group's first way per round."""
    lines = [
        f"| {title} | p50 ms | ratio | p99 ms | calls/s, {callers} callers | ratio | CPU ms per call | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for group, rows in groups.items():
        first = next(iter(rows.values()))
        for name, mine in rows.items():
            p50_ms, p99_ms, calls_per_s, cpu_ms = (statistics.median(column) for column in zip(*mine, strict=True))
            ratios = [_ratio(mine, first, column) if mine is not first else "" for column in (0, 2, 3)]
            lines.append(
                f"| {group} {name} | {p50_ms:.2f} | {ratios[0]} | {p99_ms:.2f} "
                f"| {calls_per_s:.0f} | {ratios[1]} | {cpu_ms:.2f} | {ratios[2]} |"
            )
    return "\n".join(lines)


def _ratio(rows: Sequence[Row], others: Sequence[Row], column: int) -> str:
    ratios = [mine[column] / theirs[column] for mine, theirs in zip(rows, others, strict=True) if theirs[column]]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})" if ratios else ""


def run(workload: Workload, settings: Settings, rounds: int, calls: int) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each way by group; before the first round each way is warmed up."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups = workload.start(settings, folder, stack)
        rows: dict[str, dict[str, list[Row]]] = {
            title: {way.name: [] for way in ways} for title, ways in groups.items()
        }
        for ways in groups.values():
            for way in ways:
                _load(way, workload.callers, max(1, calls // 5))
        for number in range(rounds):
            for title, ways in groups.items():
                turn = number % len(ways)
                for way in ways[turn:] + ways[:turn]:  # no way is always first
                    rows[title][way.name].append(measure(way, calls, workload.callers))
    return rows


def run_starts(
    workload: Workload, settings: Settings, starts: int, rounds: int, calls: int
) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of several starts; see `run`. Starts of the same code differ by up to 8 %."""
    first, *others = (run(workload, settings, rounds, calls) for _ in range(starts))
    for other in others:
        for title, ways in other.items():
            for name, rows in ways.items():
                first[title][name] += rows
    return first


def _parse_servers(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> list[ModelServer]:
    try:
        return [*map(ModelServer.parse, values), ModelServer("embedded")]
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(WORKLOADS)), metavar="[WORKLOAD]...")
@click.option(
    "--server", "servers", multiple=True, metavar="NAME=DIR|PROGRAM", callback=_parse_servers,
    help="Compare with the embedded server of another checkout, or with a program that takes tensorflow_model_server's "
    "flags; repeatable. Ratios are to the first.",
)  # fmt: skip
@click.option("--starts", type=click.IntRange(1), default=1, show_default=True, help="Starts of each server.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="Turns of each server, per start.")
@click.option("--calls", type=click.IntRange(1), help="Calls per turn.  [default: depends on the workload]")
@click.option("--photo", type=click.Choice(list(photos.SIZES)), default="small", show_default=True)
@click.option("--megabytes", type=click.IntRange(1, 2000), default=1024, show_default=True, help="Size of arrays.")
def main(
    names: Sequence[str],
    servers: list[ModelServer],
    starts: int,
    rounds: int,
    calls: int | None,
    photo: str,
    megabytes: int,
) -> None:
    """Measure the WORKLOADs (all by default) and print Markdown tables."""
    for name in names or WORKLOADS:
        workload = WORKLOADS[name]
        rows = run_starts(workload, Settings(servers, photo, megabytes), starts, rounds, calls or workload.calls)
        click.echo(table(name, workload.callers, rows) + "\n")


if __name__ == "__main__":
    main()
