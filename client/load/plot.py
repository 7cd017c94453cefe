"""What came of load, as a picture: latencies by percentile, and answers over time. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.client.load.generator import Load

_SLICES = 20  # of the time


class PlotError(Exception):
    """A picture can't be drawn."""


def figure() -> Any:
    """The module of matplotlib that needs no display.

    Raises:
        PlotError: the extra isn't installed.
    """
    try:
        from matplotlib import figure
    except ImportError as exc:
        raise PlotError(
            'plots need matplotlib, which is not installed; install the extra: pip install "savedmodel-bakery[plot]"'
        ) from exc
    return figure


def check(path: Path) -> None:
    """Refuse a picture before any load is made.

    Raises:
        PlotError: matplotlib is missing, doesn't know the kind of file, or there is no such folder.
    """
    known = figure().Figure().canvas.get_supported_filetypes()
    kind = path.suffix.removeprefix(".").lower()
    if kind not in known:
        raise PlotError(f'{path} ends with "{path.suffix}"; a plot ends with one of .{", .".join(sorted(known))}')
    if not path.resolve().parent.is_dir():
        raise PlotError(f"there is no folder {path.parent} for the plot")


def write(path: Path, loads: Sequence[Load]) -> None:
    """Draw the loads into `path`.

    Raises:
        OSError: it can't be written.
    """
    drawing = figure().Figure(figsize=(10, 4), layout="constrained")
    latency, answers = drawing.subplots(1, 2)
    for load in loads:
        label = f"{load.plan.callers} caller{'s' if load.plan.callers > 1 else ''}"
        if load.plan.rate_per_s is not None:
            label += f", {load.plan.rate_per_s:g}/s"
        slowest_first = np.sort(load.latencies_s)[::-1]
        # How many percent were slower: 50, 10, 1 … stand at the same distance from each other.
        latency.step(100 * np.arange(1, len(slowest_first) + 1) / len(slowest_first), slowest_first * 1e3, label=label)
        counts, edges = np.histogram(load.ended_s, _SLICES, (0, load.elapsed_s))
        answers.stairs(counts * _SLICES / load.elapsed_s, edges, label=label)
    latency.set(xscale="log", xlabel="% of calls that took so long or longer", ylabel="latency, ms", ylim=(0, None))
    latency.invert_xaxis()
    latency.xaxis.set_major_formatter("{x:g}")
    answers.set(xlabel="time, s", ylabel="right answers a second", ylim=(0, None))
    latency.legend()
    drawing.savefig(path)
