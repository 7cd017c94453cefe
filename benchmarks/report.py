"""Rows of turns as tables in Markdown and as a picture. Must not know how they were measured."""

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
    """A median over the rounds, and the least and the largest."""

    median: float
    low: float
    high: float


def figure_of(rows: Sequence[Row], key: str) -> Spread:
    """A figure of rows that differ in their round alone."""
    values = [row[key] for row in rows]
    return Spread(statistics.median(values), min(values), max(values))


def ratio_of(rows: Sequence[Row], others: Sequence[Row], key: str) -> float:
    """The median of the ratios of each round, as a round is the same time for both."""
    mine, theirs = ({row["round"]: row[key] for row in side} for side in (rows, others))
    return float(statistics.median(mine[number] / theirs[number] for number in mine))


def select(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def names_of(rows: Sequence[Row], key: str) -> list[Any]:
    """Values in the order in which they appear first."""
    return list(dict.fromkeys(row[key] for row in rows))


def table(document: dict[str, Any], *, photo: str, callers: int) -> str:
    """The contestants with one photo and one number of callers, as a Markdown table."""
    rows = select(document["rows"], photo=photo, callers=callers)
    against = document["against"]
    others = select(rows, contestant=against)
    lines = [
        f"| {callers} caller{'s' if callers > 1 else ''} | images/s (least–most) | ratio | p50 ms | p99 ms "
        "| CPU ms an image (least–most) | ratio | peak MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in document["contestants"]:
        mine = select(rows, contestant=name)
        if not mine:
            continue
        speed, cpu = figure_of(mine, "images_per_s"), figure_of(mine, "cpu_ms")
        ratios = [f"{ratio_of(mine, others, key):.2f}" if others else "" for key in ("images_per_s", "cpu_ms")]
        cells = [
            name, _spread(speed), ratios[0], _short(figure_of(mine, "p50_ms").median),
            _short(figure_of(mine, "p99_ms").median), _spread(cpu), ratios[1], f"{mine[0]['peak_mb']:.0f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def markdown(document: dict[str, Any]) -> str:
    """All of it: the machine, who took part, and a table for each photo and number of callers."""
    parts = [f"## {document['network']}", _machine(document), _legend(document)]
    for photo in names_of(document["rows"], "photo"):
        parts.append(f"### {photo_title(document, photo)}")
        parts += [
            table(document, photo=photo, callers=callers) for callers in names_of(document["rows"], "callers")
        ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def photo_title(document: dict[str, Any], photo: str) -> str:
    """What a photo is called."""
    width, height = document["sizes"][photo]
    return f"JPEG of {width}×{height}"


def summary(document: dict[str, Any], *, callers: int) -> str:
    """The tables of one number of callers, below a line that names the machine."""
    parts = [f"{document['network']} on {_machine(document)}"]
    for photo in names_of(document["rows"], "photo"):
        parts += [f"A {photo_title(document, photo)}:", table(document, photo=photo, callers=callers)]
    return "\n\n".join(parts)


def draw(document: dict[str, Any], path: Path, *, callers: int) -> None:
    """Draw images a second and CPU time of each photo with one number of callers, as bars with their spread."""
    photos = names_of(document["rows"], "photo")
    drawing = Figure(figsize=(9, 0.6 + 2.6 * len(photos)), layout="constrained")
    panels = drawing.subplots(len(photos), 2, squeeze=False, sharey=True)
    measures: dict[str, str] = {"images_per_s": "images a second", "cpu_ms": "server's CPU, ms an image"}
    for line, photo in zip(panels, photos, strict=True):
        rows = select(document["rows"], photo=photo, callers=callers)
        for panel, (key, title) in zip(line, measures.items(), strict=True):
            _bars(panel, rows, key)
            panel.set_title(f"{title}, {photo_title(document, photo)}", fontsize=9)
    drawing.suptitle(f"{document['network']}, {callers} callers, {document['machine']['CPU']}", fontsize=10)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "benchmarks"}):  # small, and the same each time
        drawing.savefig(path, metadata={"Date": None})


def _bars(panel: Any, rows: Sequence[Row], key: str) -> None:
    names = names_of(rows, "contestant")[::-1]
    found = [figure_of(select(rows, contestant=name), key) for name in names]
    medians = [one.median for one in found]
    spread = [[one.median - one.low for one in found], [one.high - one.median for one in found]]
    colours = [next(colour for word, colour in _COLOURS.items() if word in name) for name in names]
    bars = panel.barh(names, medians, xerr=spread, color=colours, error_kw={"lw": 0.8})
    panel.bar_label(bars, labels=[_short(median) for median in medians], padding=4, fontsize=7)
    panel.margins(x=0.15)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _machine(document: dict[str, Any]) -> str:
    named = ("TensorFlow", "load before")
    said = ", ".join(f"{name} {value}" if name in named else value for name, value in document["machine"].items())
    return (
        f"{said}. Interleaved rounds ({document['rounds']} of {document['seconds']:g} s), medians; ratios are to "
        f"`{document['against']}`; the load generator shares the machine."
    )


def _legend(document: dict[str, Any]) -> str:
    lines = [f"- `{name}`: {what}" for name, what in document["contestants"].items()]
    lines += [f"- `{name}` was left out: {why}" for name, why in document["left_out"].items()]
    return "\n".join(lines)


def _spread(found: Spread) -> str:
    return f"{_short(found.median)} ({_short(found.low)}–{_short(found.high)})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
