"""Draws a pipeline: as text for a terminal, and as a flowchart of Mermaid, which GitHub and the documentation show."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline, Step

_TEXT_WIDTH = 34

# Mermaid's own entities (mermaid.js.org/syntax/flowchart.html), for characters that have a meaning in its labels.
_ENTITIES = {ord(character): f"#{ord(character)};" for character in '"#&<>`*'}


def draw_text(pipeline: Pipeline, forms: Mapping[str, str]) -> str:
    """Return the drawing, several lines: the steps by level in boxes, and below each level the tensors that it makes.

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


def draw_mermaid(pipeline: Pipeline, forms: Mapping[str, str]) -> str:
    """Return the drawing, several lines: a box for each input, step and output, and arrows with the tensors' names.

    Args:
        pipeline: without cycles.
        forms: dtype and shape of each tensor by name.
    """
    lines = ["flowchart TD"]
    makers = {name: f"input{number}" for number, name in enumerate(pipeline.inputs, 1)}
    lines += [f"    {box}([{_label(name, forms[name])}])" for name, box in makers.items()]
    for number, step in enumerate(pipeline.steps, 1):
        lines.append(f"    step{number}[{_label(step.name, str(step.model), step.signature)}]")
        makers.update(dict.fromkeys(step.output_map.values(), f"step{number}"))
    for number, step in enumerate(pipeline.steps, 1):
        tensors: dict[str, list[str]] = {}
        for name in dict.fromkeys(step.input_map.values()):
            tensors.setdefault(makers[name], []).append(name)
        for maker, names in tensors.items():
            label = "" if names[0] in pipeline.inputs else f"|{_label(*names)}|"  # the box of an input has the name
            lines.append(f"    {maker} -->{label} step{number}")
    for number, name in enumerate(pipeline.outputs, 1):
        lines.append(f"    {makers[name]} --> output{number}([{_label(name, forms[name])}])")
    return "\n".join(lines)


def _label(*lines: str) -> str:
    return '"' + "<br>".join(line.translate(_ENTITIES) for line in lines) + '"'
