"""Plots load-test results: latencies by percentile, and throughput over time. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.client.load.generator import Load
from savedmodel_bakery.extras import naming_extras

_TIME_SLICES = 20


def _new_figure(**options: Any) -> Any:
    """Return a figure of matplotlib, which needs no display."""
    with naming_extras("a plot", "plot"):
        from matplotlib.figure import Figure
    return Figure(**options)


def check(path: Path) -> None:
    """Check before a load starts that a plot can be written to this file.

    Raises:
        ModuleNotFoundError: the extra `plot` is not installed.
        ValueError: matplotlib does not support the file type, or the folder does not exist.
    """
    supported = _new_figure().canvas.get_supported_filetypes()
    file_type = path.suffix.removeprefix(".").lower()
    if file_type not in supported:
        raise ValueError(
            f'unsupported plot file {path}: its name ends with "{path.suffix}", '
            f"supported are .{', .'.join(sorted(supported))}"
        )
    if not path.resolve().parent.is_dir():
        raise ValueError(f"folder of the plot not found: {path.parent}")


def write(path: Path, loads: Sequence[Load]) -> None:
    """Draw the loads and write the plot.

    Raises:
        OSError: the file cannot be written.
    """
    drawing = _new_figure(figsize=(10, 4), layout="constrained")
    latency, throughput = drawing.subplots(1, 2)
    for load in loads:
        label = f"{load.plan.callers} caller{'s' if load.plan.callers > 1 else ''}"
        if load.plan.rate_per_s is not None:
            label += f", {load.plan.rate_per_s:g}/s"
        slowest_first = np.sort(load.latencies_s)[::-1]
        # The axis is the percentage of slower calls, so that 50, 10, 1 … have the same distance from each other.
        latency.step(100 * np.arange(1, len(slowest_first) + 1) / len(slowest_first), slowest_first * 1e3, label=label)
        counts, edges = np.histogram(load.ended_s, _TIME_SLICES, (0, load.elapsed_s))
        throughput.stairs(counts * _TIME_SLICES / load.elapsed_s, edges, label=label)
    latency.set(xscale="log", xlabel="% of calls with this latency or more", ylabel="latency, ms", ylim=(0, None))
    latency.invert_xaxis()
    latency.xaxis.set_major_formatter("{x:g}")
    throughput.set(xlabel="time, s", ylabel="correct responses per second", ylim=(0, None))
    latency.legend()
    drawing.savefig(path)
