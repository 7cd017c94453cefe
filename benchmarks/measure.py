"""Rounds: contestants take turns, so that what else the machine does falls on all of them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine, networks, photos
from benchmarks.candidates import Contestant, LeftOut, Running, Workshop, start
from benchmarks.processes import PeakMemory, Tree

WARM_UP_S = 2.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Course:
    """What is measured.

    Attributes:
        contestants: by name.
        photos: names in `photos.SIZES`.
        callers: numbers of callers, rising.
        rounds: turns of each contestant with each number of callers and each photo.
        seconds: of a turn.
        against: the contestant that others are compared with.
    """

    contestants: Mapping[str, Contestant]
    photos: Sequence[str]
    callers: Sequence[int]
    rounds: int
    seconds: float
    against: str


def run(course: Course, workshop: Workshop, say: Say) -> dict[str, Any]:
    """Measure.

    Each photo has servers of its own, warmed up by the fewest callers; so memory is never that of another photo, and in
    the first round not that of more callers.

    Returns:
        What `benchmarks.report` makes tables of, ready for JSON: the rows, one for each turn, and of what they are.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # which ends the servers too
    described = machine.describe()
    rows: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for photo in course.photos:
        path = workshop.folder / f"{photo}.jpg"
        path.write_bytes(photos.make(photo))
        with ExitStack() as stack:
            running = _start_all(course, workshop, path, stack, left_out, say)
            for number in range(course.rounds):
                for callers in course.callers:
                    turn = number % len(running) if running else 0
                    for one in running[turn:] + running[:turn]:  # nobody is always first
                        rows.append(_turn(one, photo, callers, course.seconds) | {"round": number})
                        say(_line(rows[-1]))
    return {
        "network": workshop.network,
        "machine": described,
        "against": course.against,
        "rounds": course.rounds,
        "seconds": course.seconds,
        "sizes": photos.SIZES,
        "contestants": {name: one.what for name, one in course.contestants.items() if name not in left_out},
        "left_out": left_out,
        "rows": rows,
    }


def _start_all(
    course: Course, workshop: Workshop, photo: Path, stack: ExitStack, left_out: dict[str, str], say: Say
) -> list[Running]:
    running = []
    is_trained = networks.read_description(workshop.network_folder).is_trained
    for name, contestant in course.contestants.items():
        if name in left_out:
            continue
        try:
            one = stack.enter_context(start(name, contestant, workshop, {photo.stem: photo}))
        except LeftOut as error:
            left_out[name] = str(error)
            say(f"{name} is left out: {error}")
            continue
        label = one.generator.labels[photo.stem]
        if is_trained and label != photos.LABEL:
            raise SystemExit(f"{name} says that the {photo.stem} photo is {label}; it is {photos.LABEL}")
        one.generator.load(photo=photo.stem, callers=min(course.callers), seconds=WARM_UP_S)
        running.append(one)
        say(f"{name} is ready: {contestant.what}")
    return running


def _turn(one: Running, photo: str, callers: int, seconds: float) -> dict[str, Any]:
    tree = Tree(one.pids)
    before_s = tree.cpu_s()
    with PeakMemory(tree) as memory:
        load = one.generator.load(photo=photo, callers=callers, seconds=seconds)
    cpu_s = tree.cpu_s() - before_s
    if load["errors"]:
        raise SystemExit(f"{one.name} failed with {callers} callers: {load['errors']} {load['messages']}")
    return {
        "contestant": one.name,
        "photo": photo,
        "callers": callers,
        "images": load["answered"],
        "images_per_s": load["images_per_s"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
        "cpu_ms": cpu_s / (load["answered"] + callers) * 1e3,  # each caller has made a call that doesn't count
        "peak_mb": memory.peak_bytes / 1e6,
        "generator_cpu_percent": load["client_cpu_percent"],
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"round {row['round'] + 1}, {row['photo']}, {row['callers']:2} callers, {row['contestant']:18}"
        f"{row['images_per_s']:7.1f} images/s {row['cpu_ms']:7.1f} ms CPU {row['peak_mb']:6.0f} MB"
    )
