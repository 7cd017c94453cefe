"""Presents load-test results as a table, as JSON, or as a plot, which needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.client.load.generator import Load
from savedmodel_bakery.extras import naming_extras

PERCENTILES = (50, 90, 99)
_TIME_SLICES = 20


def percentile_ms(load: Load, percent: float) -> float | None:
    """Return the measured latency that this percentage of calls did not exceed; None if there are no calls."""
    if not len(load.latencies_s):
        return None
    return float(np.percentile(load.latencies_s, percent, method="higher")) * 1e3


def summary(load: Load, *, images: int | None) -> dict[str, Any]:
    """Return the figures of one load; `images` is their number per request, None if requests contain something else."""
    answered = len(load.ended_s)
    per_s = answered / load.elapsed_s
    return {
        "callers": load.plan.callers,
        "rate_per_s": load.plan.rate_per_s,
        "requests": answered + sum(load.errors.values()),
        "answered": answered,
        "elapsed_s": load.elapsed_s,
        "requests_per_s": per_s,
        "images_per_s": None if images is None else per_s * images,
        **{f"p{percent}_ms": percentile_ms(load, percent) for percent in PERCENTILES},
        "max_ms": percentile_ms(load, 100),
        "errors": dict(load.errors),
        "late": load.late,
        "client_cpu_percent": 100 * load.client_cpu_s / load.elapsed_s,
    }


def table(summaries: Sequence[dict[str, Any]]) -> str:
    """Return a table with a header and one line per load, without columns that are empty in all of them."""
    columns = {
        "callers": "callers",
        "rate_per_s": "rate/s",
        "requests": "requests",
        "requests_per_s": "requests/s",
        "images_per_s": "images/s",
        **{f"p{percent}_ms": f"p{percent} ms" for percent in PERCENTILES},
        "max_ms": "max ms",
        "client_cpu_percent": "client CPU %",
        "errors": "errors",
    }
    shown = [key for key in columns if any(row[key] is not None for row in summaries)]
    cells = [[columns[key] for key in shown]] + [[_cell(key, row[key]) for key in shown] for row in summaries]
    widths = [max(len(line[place]) for line in cells) for place in range(len(shown))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def remarks(loads: Sequence[Load]) -> list[str]:
    """Return what a reader of the table should know: the first error messages, and whether the client was the limit."""
    lines = [f"{status}: {text}" for load in loads for status, text in load.messages.items()]
    for load in loads:
        if load.late:
            lines.append(
                f"at {load.plan.rate_per_s:g} per second {load.late} calls waited for one of {load.plan.callers} "
                "callers. Their latency includes the wait; more --callers shorten it if the server keeps up"
            )
        if load.client_cpu_s > 0.8 * load.elapsed_s:
            lines.append(
                f"with {load.plan.callers} callers this client used {100 * load.client_cpu_s / load.elapsed_s:.0f} % "
                "of a CPU, and Python uses only one: the client may be the limit, not the server"
            )
    return list(dict.fromkeys(lines))


def check_plot(path: Path) -> None:
    """Raise ValueError before a load starts if a plot cannot be written to this file."""
    supported = _new_figure().canvas.get_supported_filetypes()
    file_type = path.suffix.removeprefix(".").lower()
    if file_type not in supported:
        raise ValueError(
            f'unsupported plot file {path}: its name ends with "{path.suffix}", '
            f"supported are .{', .'.join(sorted(supported))}"
        )
    if not path.resolve().parent.is_dir():
        raise ValueError(f"folder of the plot not found: {path.parent}")


def write_plot(path: Path, loads: Sequence[Load]) -> None:
    """Draw the loads and write the plot."""
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


def _new_figure(**options: Any) -> Any:
    """Return a figure of matplotlib, which needs no display."""
    with naming_extras("a plot", "plot"):
        from matplotlib.figure import Figure
    return Figure(**options)


def _cell(key: str, value: Any) -> str:
    if key == "errors":
        return ", ".join(f"{count} {status}" for status, count in value.items()) or "none"
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) and value < 1000 else f"{value:.0f}"
