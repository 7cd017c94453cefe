"""Formats measurements as Markdown tables and as a plot. Does not know how they were measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

Row = dict[str, Any]
_COLOURS = {"ours": "#2a6f97", "direct": "#89a7b8", "": "#b0b0b0"}


class Spread(NamedTuple):
    """The median over the rounds, the minimum and the maximum."""

    median: float
    low: float
    high: float


def spread_of(rows: Sequence[Row], key: str) -> Spread:
    """Return the spread of a column over rows of different rounds."""
    values = [row[key] for row in rows]
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(rows: Sequence[Row], others: Sequence[Row], key: str) -> float:
    """Return the median of the ratios per round; both sides of a ratio were measured at about the same time."""
    mine, theirs = ({row["round"]: row[key] for row in side} for side in (rows, others))
    return float(statistics.median(mine[number] / theirs[number] for number in mine))


def select(rows: Sequence[Row], **values: Any) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def names_of(rows: Sequence[Row], key: str) -> list[Any]:
    """Return the distinct values of a column in order of first appearance."""
    return list(dict.fromkeys(row[key] for row in rows))


def table(document: dict[str, Any], *, photo: str, callers: int) -> str:
    """Return a Markdown table of the candidates, for one photo and one number of callers."""
    rows = select(document["rows"], photo=photo, callers=callers)
    agreement = document.get("agreement", {})
    lines = [
        f"| {callers} caller{'s' if callers > 1 else ''} | images/s (least–most) | ratio | p50 ms | p99 ms "
        "| CPU ms per image (least–most) | ratio | labels of float32 | peak MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in document["candidates"]:
        mine = select(rows, candidate=name)
        if not mine:
            continue
        others = select(rows, candidate=document["against"][name])
        speed, cpu = spread_of(mine, "images_per_s"), spread_of(mine, "cpu_ms")
        ratios = [f"{ratio_of(mine, others, key):.2f}" if others else "" for key in ("images_per_s", "cpu_ms")]
        cells = [
            name, _spread(speed), ratios[0], _short(spread_of(mine, "p50_ms").median),
            _short(spread_of(mine, "p99_ms").median), _spread(cpu), ratios[1],
            "" if agreement.get(name) is None else f"{agreement[name]:.3f}", f"{mine[0]['peak_mb']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def markdown(document: dict[str, Any]) -> str:
    """Return the machine, the legend, and a table for each photo and number of callers."""
    parts = [f"## {document['network']}", _machine(document), _legend(document)]
    for photo in names_of(document["rows"], "photo"):
        parts.append(f"### {photo_title(document, photo)}")
        parts += [
            table(document, photo=photo, callers=callers) for callers in names_of(document["rows"], "callers")
        ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def photo_title(document: dict[str, Any], photo: str) -> str:
    """Return the heading for a photo."""
    width, height = document["sizes"][photo]
    return f"JPEG of {width}×{height}"


def draw(document: dict[str, Any], path: Path, *, callers: int) -> None:
    """Plot images per second and CPU time for each photo and one number of callers, as bars with their spread."""
    photos = names_of(document["rows"], "photo")
    drawing = Figure(figsize=(9, 0.6 + 2.6 * len(photos)), layout="constrained")
    panels = drawing.subplots(len(photos), 2, squeeze=False, sharey=True)
    measures: dict[str, str] = {"images_per_s": "images per second", "cpu_ms": "server's CPU, ms per image"}
    for line, photo in zip(panels, photos, strict=True):
        rows = select(document["rows"], photo=photo, callers=callers)
        for panel, (key, title) in zip(line, measures.items(), strict=True):
            _bars(panel, rows, key)
            panel.set_title(f"{title}, {photo_title(document, photo)}", fontsize=9)
    drawing.suptitle(f"{document['network']}, {callers} callers, {document['machine']['CPU']}", fontsize=10)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"}):  # small and reproducible
        drawing.savefig(path, metadata={"Date": None})


def _bars(panel: Any, rows: Sequence[Row], key: str) -> None:
    names = names_of(rows, "candidate")[::-1]
    spreads = [spread_of(select(rows, candidate=name), key) for name in names]
    medians = [spread.median for spread in spreads]
    errors = [[spread.median - spread.low for spread in spreads], [spread.high - spread.median for spread in spreads]]
    colours = [next(colour for word, colour in _COLOURS.items() if word in name) for name in names]
    bars = panel.barh(names, medians, xerr=errors, color=colours, error_kw={"lw": 0.8})
    panel.bar_label(bars, labels=[_short(median) for median in medians], padding=4, fontsize=7)
    panel.margins(x=0.15)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def machine_line(machine: dict[str, str]) -> str:
    """Return a sentence about the machine that `benchmarks.machine` describes."""
    with_name = ("TensorFlow", "load before")
    return ", ".join(f"{name} {value}" if name in with_name else value for name, value in machine.items()) + "."


def _machine(document: dict[str, Any]) -> str:
    baselines = dict.fromkeys(f"`{document['against'][name]}`" for name in document["candidates"])
    same_server = ", the one on the same server" if len(baselines) > 1 else ""
    return (
        f"{machine_line(document['machine'])} Interleaved rounds ({document['rounds']} of {document['seconds']:g} s), "
        f"medians; ratios are to {' or '.join(baselines)}{same_server}; the load generator shares the machine."
    )


def _legend(document: dict[str, Any]) -> str:
    lines = [f"- `{name}`: {title}" for name, title in document["candidates"].items()]
    lines += [f"- `{name}` was skipped: {reason}" for name, reason in document["skipped"].items()]
    return "\n".join(lines)


def _spread(spread: Spread) -> str:
    return f"{_short(spread.median)} ({_short(spread.low)}–{_short(spread.high)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
