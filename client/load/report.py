"""Formats load-test results as a table or as JSON. Does no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.client.load.generator import Load

PERCENTILES = (50, 90, 99)


def percentile_ms(load: Load, percent: float) -> float | None:
    """Return the measured latency that this percentage of calls did not exceed; None if there are no calls."""
    if not len(load.latencies_s):
        return None
    return float(np.percentile(load.latencies_s, percent, method="higher")) * 1e3


def summary(load: Load, *, images: int | None) -> dict[str, Any]:
    """Return the figures of one load.

    Args:
        load: the measurements.
        images: images per request; None if requests contain something else.
    """
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


def _cell(key: str, value: Any) -> str:
    if key == "errors":
        return ", ".join(f"{count} {status}" for status, count in value.items()) or "none"
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) and value < 1000 else f"{value:.0f}"
