"""What came of load, in figures: for people as a table, for machines as JSON. Must not know how it was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.client.load.generator import Load

PERCENTILES = (50, 90, 99)


def percentile_ms(load: Load, percent: float) -> float | None:
    """The latency that so many percent of the calls did not exceed, which is one that was seen; None without calls."""
    if not len(load.latencies_s):
        return None
    return float(np.percentile(load.latencies_s, percent, method="higher")) * 1e3


def summary(load: Load, *, images: int | None) -> dict[str, Any]:
    """The figures of one load.

    Args:
        load: what came of it.
        images: how many a request holds; None where it holds something else.
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
    """A line for each load, below a head; columns that none of them has are left out."""
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
    """What a reader of the table should know of the loads: first messages, and where the client was the limit."""
    said = [f"{status}: {text}" for load in loads for status, text in load.messages.items()]
    for load in loads:
        if load.late:
            said.append(
                f"at {load.plan.rate_per_s:g} a second {load.late} calls waited for one of {load.plan.callers} "
                "callers; the wait is in their latency, and more --callers shorten it where the server keeps up"
            )
        if load.client_cpu_s > 0.8 * load.elapsed_s:
            said.append(
                f"with {load.plan.callers} callers this client used {100 * load.client_cpu_s / load.elapsed_s:.0f} % "
                "of a CPU, and Python uses one: it may be the limit, not the server"
            )
    return list(dict.fromkeys(said))


def _cell(key: str, value: Any) -> str:
    if key == "errors":
        return ", ".join(f"{count} {status}" for status, count in value.items()) or "none"
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) and value < 1000 else f"{value:.0f}"
