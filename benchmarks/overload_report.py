"""Formats measurements of overload as a Markdown table. Does not know how they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Row, machine_line, names_of, select

_HEAD = (
    "offered | photos/s | answered in time/s | of the peak (least–most) | rejected/s | too late/s | p50 ms | p99 ms "
    "| health p99 ms, gRPC, REST | metadata p99 ms, gRPC, REST | failed | MB before, peak, after"
)


def markdown(document: dict[str, Any]) -> str:
    """Return the machine and a table for each transport; figures are medians over the rounds."""
    width, height = document["size"]
    parts = [
        f"{machine_line(document['machine'])} {document['rounds']} rounds of {document['seconds']:g} s per load, "
        f"medians. JPEG of {width}×{height} ({document['bytes'] / 1e6:.1f} MB), deadline {document['deadline_s']:g} s; "
        f"CPUs of the server: {document['server_cpus']}; the load generator has others."
    ]
    for transport in names_of(document["rows"], "transport"):
        parts.append(table(select(document["rows"], transport=transport), transport))
    return "\n\n".join(parts) + "\n"


def table(rows: Sequence[Row], transport: str) -> str:
    """Return a table with a line for each load.

    The peak is that of the same round: the most photos per second that were answered in time under any load. Memory is
    that of the first round before, of all rounds at the peak, and of the last round after.
    """
    peaks = {number: max(_column(select(rows, round=number), "in_time_per_s")) for number in names_of(rows, "round")}
    lines = [f"| {transport}, {_HEAD} |", f"| --- |{' ---: |' * 11}"]
    for load in names_of(rows, "load"):
        mine = select(rows, load=load)
        ratios = [row["in_time_per_s"] / peaks[row["round"]] for row in mine]
        cells = [
            "as fast as 8 callers get answers" if load is None else f"{load} times that",
            *(f"{statistics.median(_column(mine, key)):.1f}" for key in ("offered_per_s", "in_time_per_s")),
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})",
            *(f"{statistics.median(_column(mine, key)):.1f}" for key in ("rejected_per_s", "too_late_per_s")),
            *(_latency(mine, key) for key in ("p50_ms", "p99_ms")),
            *(_probes(mine, call) for call in ("health", "metadata")),
            f"{sum(_column(mine, 'probes_failed')):.0f}",
            f"{mine[0]['before_mb']:.0f}, {max(_column(mine, 'peak_mb')):.0f}, {mine[-1]['after_mb']:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _latency(rows: Sequence[Row], key: str) -> str:
    values = [value for value in _column(rows, key) if value is not None]
    return f"{statistics.median(values):.0f}" if values else "no answer"


def _probes(rows: Sequence[Row], call: str) -> str:
    values = ([row["probes_p99_ms"][f"{transport} {call}"] for row in rows] for transport in ("gRPC", "REST"))
    return ", ".join(f"{statistics.median(value):.0f}" for value in values)


def _column(rows: Sequence[Row], key: str) -> list[Any]:
    return [row[key] for row in rows]
