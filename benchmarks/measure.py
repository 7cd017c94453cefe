"""Measures candidates in rounds: they take turns, so that other load on the machine affects all of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine, networks, photos
from benchmarks.candidates import Candidate, CandidateSkippedError, Running, Workshop, start
from benchmarks.processes import PeakMemory, Tree

WARM_UP_S = 2.0


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        candidates: the candidates by name.
        photos: names in `photos.SIZES`.
        callers: numbers of concurrent callers, ascending.
        rounds: turns of each candidate with each number of callers and each photo.
        seconds: duration of a turn.
        against: the candidate that the others are compared with, except those that name one themselves.
    """

    candidates: Mapping[str, Candidate]
    photos: Sequence[str]
    callers: Sequence[int]
    rounds: int
    seconds: float
    against: str


def run(plan: Plan, workshop: Workshop, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure, and log each turn.

    Servers are started anew for each photo and warmed up with the fewest callers. So memory never includes what
    another photo needed, and in the first round not what more callers needed.

    Returns:
        The input of `benchmarks.report`, ready for JSON: one row per turn, and a description of the run.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the servers end too
    description = machine.describe()
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for photo in plan.photos:
        path = workshop.folder / f"{photo}.jpg"
        path.write_bytes(photos.make(photo))
        with ExitStack() as stack:
            running = _start_all(plan, workshop, path, stack, skipped, log)
            for number in range(plan.rounds):
                for callers in plan.callers:
                    turn = number % len(running) if running else 0
                    for candidate in running[turn:] + running[:turn]:  # no candidate is always first
                        rows.append(_measure(candidate, photo, callers, plan.seconds) | {"round": number})
                        log(_line(rows[-1]))
    return {
        "network": workshop.network,
        "machine": description,
        "against": {name: one.against or plan.against for name, one in plan.candidates.items()},
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "sizes": photos.SIZES,
        "candidates": {name: one.title for name, one in plan.candidates.items() if name not in skipped},
        "skipped": skipped,
        "agreement": {name: workshop.agreement(one.servable or "") for name, one in plan.candidates.items()},
        "rows": rows,
    }


def _start_all(
    plan: Plan,
    workshop: Workshop,
    photo: Path,
    stack: ExitStack,
    skipped: dict[str, str],
    log: Callable[[str], None],
) -> list[Running]:
    """Start and warm up the candidates; adds the reasons of those that do not start to `skipped`."""
    ready = []
    is_trained = networks.read_description(workshop.network_folder).is_trained
    for name, candidate in plan.candidates.items():
        if name in skipped:
            continue
        try:
            running = stack.enter_context(start(name, candidate, workshop, {photo.stem: photo}))
        except CandidateSkippedError as error:
            skipped[name] = str(error)
            log(f"{name} is skipped: {error}")
            continue
        label = running.generator.labels[photo.stem]
        if is_trained and label != photos.LABEL:
            raise SystemExit(f"{name} classifies the {photo.stem} photo as {label}: must be {photos.LABEL}")
        running.generator.load(photo=photo.stem, callers=min(plan.callers), seconds=WARM_UP_S)
        ready.append(running)
        log(f"{name} is ready: {candidate.title}")
    return ready


def _measure(candidate: Running, photo: str, callers: int, seconds: float) -> dict[str, Any]:
    tree = Tree(candidate.pids)
    before_s = tree.cpu_s()
    with PeakMemory(tree) as memory:
        load = candidate.generator.load(photo=photo, callers=callers, seconds=seconds)
    cpu_s = tree.cpu_s() - before_s
    if load["errors"]:
        raise SystemExit(f"{candidate.name} failed with {callers} callers: {load['errors']} {load['messages']}")
    return {
        "candidate": candidate.name,
        "photo": photo,
        "callers": callers,
        "images": load["answered"],
        "images_per_s": load["images_per_s"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
        "cpu_ms": cpu_s / (load["answered"] + callers) * 1e3,  # each caller made one uncounted call
        "peak_mb": memory.peak_bytes / 1e6,
        "generator_cpu_percent": load["client_cpu_percent"],
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"round {row['round'] + 1}, {row['photo']}, {row['callers']:2} callers, {row['candidate']:18}"
        f"{row['images_per_s']:7.1f} images/s {row['cpu_ms']:7.1f} ms CPU {row['peak_mb']:6.0f} MB"
    )
