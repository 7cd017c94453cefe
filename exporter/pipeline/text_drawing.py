"""Draws a pipeline as text: the steps by level in boxes, and below each level the tensors that it makes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, Step

_TEXT_WIDTH = 34


def draw_text(pipeline: Pipeline, forms: Mapping[str, str]) -> str:
    """Return the drawing, several lines.

    Args:
        pipeline: without cycles.
        forms: dtype and shape of each tensor by name.
    """
    lines = [f"{name}: {forms[name]}" for name in pipeline.inputs]
    for level in pipeline.levels():
        lines += ["│", "▼", *_side_by_side([_box(step) for step in level])]
        for name in (name for step in level for name in step.output_map.values()):
            lines.append(f"{name}: {forms[name]}" + (" ► output" if name in pipeline.outputs else ""))
    return "\n".join(lines)


def _box(step: Step) -> list[str]:
    """Return the lines of a box, all of the same width."""
    content = [step.name, str(step.model), step.signature, *_wrapped("→ ", step.input_map.values())]
    content += _wrapped("← ", step.output_map.values())
    width = max(map(len, content))
    return [f"┌{'─' * (width + 2)}┐", *(f"│ {line:<{width}} │" for line in content), f"└{'─' * (width + 2)}┘"]


def _wrapped(arrow: str, names: Iterable[str]) -> list[str]:
    return textwrap.wrap(", ".join(dict.fromkeys(names)), _TEXT_WIDTH, initial_indent=arrow, subsequent_indent="  ")


def _side_by_side(boxes: Sequence[list[str]]) -> list[str]:
    widths = [len(box[0]) for box in boxes]
    return [
        "  ".join(f"{line:<{width}}" for line, width in zip(lines, widths, strict=True)).rstrip()
        for lines in zip_longest(*boxes, fillvalue="")
    ]
