"""Draws a pipeline as SVG, from the inputs at the top to the outputs at the bottom.

Rows of boxes and rows of labels take turns. An edge leads through each row between its ends, at a point that nothing
else covers, and has the names of its tensors in the first row of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from savedmodel_bakery.exporter.pipeline.pipeline_file import Pipeline

_BOX_CHARACTER, _LABEL_CHARACTER = 7.6, 6.4  # pixels, at the font sizes below
_LINE, _LABEL_LINE, _PADDING, _GAP, _ROW_GAP, _MARGIN = 18, 15, 10, 24, 26, 20
_ROUNDS = 12  # of moving what is connected below each other
_STYLE = """
  text { font-family: sans-serif; font-size: 13px; fill: #1c2b3a; text-anchor: middle; }
  .name { font-weight: bold; } .model { font-size: 11px; fill: #51657a; }
  .label { font-size: 11px; fill: #51657a; }
  .step { fill: #e9f1fb; stroke: #3d6fa8; } .end { fill: #f3f0e6; stroke: #8f7f4a; }
  .edge { fill: none; stroke: #7c8da0; stroke-width: 1.3px; }
"""


@dataclass(eq=False)
class _Item:
    """A box, a label, or a point that an edge leads through; `x` is its middle."""

    row: int
    lines: Sequence[str] = ()
    shape: str = ""
    before: list[_Item] = field(default_factory=list)
    after: list[_Item] = field(default_factory=list)
    x: float = 0

    @property
    def width(self) -> float:
        character = _BOX_CHARACTER if self.shape else _LABEL_CHARACTER
        return max((len(line) * character for line in self.lines), default=0) + (2 * _PADDING if self.shape else 0)

    @property
    def height(self) -> float:
        line = _LINE if self.shape else _LABEL_LINE
        return len(self.lines) * line + (_PADDING if self.shape else 0)


def draw_svg(pipeline: Pipeline, forms: Mapping[str, str]) -> str:
    """Return the drawing as an SVG file.

    Args:
        pipeline: without cycles.
        forms: dtype and shape of each tensor by name.
    """
    rows = _rows(pipeline, forms)
    for number in range(_ROUNDS):
        for row in rows if number % 2 else reversed(rows):
            _align(row, {item: _middle([*item.before, *item.after], item) for item in row}, sort=number < _ROUNDS // 2)
    for row in reversed(rows):  # edges bend at their start, and lead straight down
        _align(row, {item: item.x if item.shape else item.after[0].x for item in row})
    left = min(item.x - item.width / 2 for row in rows for item in row) - _MARGIN
    width = max(item.x + item.width / 2 for row in rows for item in row) + _MARGIN - left
    tops, bottom = [], float(_MARGIN)
    for row in rows:
        tops.append(bottom)
        bottom += max(item.height for item in row) + _ROW_GAP
    heights = [max(item.height for item in row) for row in rows]
    edges = [_edge(item, target, tops, heights) for row in rows for item in row for target in item.after]
    boxes = [_box(item, tops[item.row] + (heights[item.row] - item.height) / 2) for row in rows for item in row]
    height = bottom - _ROW_GAP + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}">\n<title>{escape(pipeline.name)}</title>\n<style>{_STYLE}</style>\n'
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#7c8da0"/></marker></defs>\n'
        f'<rect x="{left:.0f}" width="{width:.0f}" height="{height:.0f}" fill="#fff"/>\n'
        + "\n".join([*edges, *filter(None, boxes)])
        + "\n</svg>\n"
    )


def _rows(pipeline: Pipeline, forms: Mapping[str, str]) -> list[list[_Item]]:
    """Return the rows of boxes, and between them those of labels."""
    levels = pipeline.levels()
    last = 2 * (len(levels) + 1)
    rows: list[list[_Item]] = [[] for _ in range(last + 1)]
    tensors: dict[tuple[_Item, _Item], list[str]] = {}
    makers = {name: _Item(0, [name, forms[name]], "end") for name in pipeline.inputs}
    rows[0] += makers.values()
    for number, level in enumerate(levels, 1):
        for step in level:
            item = _Item(2 * number, [step.name, str(step.model), step.signature], "step")
            rows[2 * number].append(item)
            for name in dict.fromkeys(step.input_map.values()):
                tensors.setdefault((makers[name], item), []).append(name)
            makers.update(dict.fromkeys(step.output_map.values(), item))
    for name in pipeline.outputs:
        rows[last].append(_Item(last, [name, forms[name]], "end"))
        tensors.setdefault((makers[name], rows[last][-1]), []).append(name)
    for (source, target), names in tensors.items():
        # The boxes of inputs and outputs have the names already.
        path = [source, *(_Item(row) for row in range(source.row + 1, target.row)), target]
        if "end" not in (source.shape, target.shape):
            path[1].lines = names
        for item, following in pairwise(path):
            item.after.append(following)
            following.before.append(item)
        for item in path[1:-1]:
            rows[item.row].append(item)
    return rows


def _middle(items: Sequence[_Item], item: _Item) -> float:
    """Return the middle of items; that of `item` if there are none."""
    return sum(other.x for other in items) / len(items) if items else item.x


def _align(row: list[_Item], wanted: Mapping[_Item, float], *, sort: bool = False) -> None:
    """Move items to where they are wanted, as far as possible without overlaps; `sort` may change their order."""
    if sort:
        row.sort(key=wanted.__getitem__)
    edge = float("-inf")
    for item in row:
        item.x = max(wanted[item], edge + item.width / 2)
        edge = item.x + item.width / 2 + _GAP
    shift = sum(item.x - wanted[item] for item in row) / len(row)
    for item in row:
        item.x -= shift


def _edge(item: _Item, target: _Item, tops: Sequence[float], heights: Sequence[float]) -> str:
    """Return the part of an edge between two rows, and through the lower one if the edge goes on."""
    start = tops[item.row] + (heights[item.row] + item.height) / 2 if item.shape else tops[item.row] + heights[item.row]
    end = tops[target.row] + (heights[target.row] - target.height) / 2 if target.shape else tops[target.row]
    middle = (start + end) / 2
    curve = f"M{item.x:.1f} {start:.1f} C{item.x:.1f} {middle:.1f} {target.x:.1f} {middle:.1f} {target.x:.1f} {end:.1f}"
    if target.shape:
        return f'<path class="edge" d="{curve}" marker-end="url(#arrow)"/>'
    return f'<path class="edge" d="{curve} V{end + heights[target.row]:.1f}"/>'


def _box(item: _Item, top: float) -> str:
    if not item.lines:
        return ""
    if not item.shape:
        return (
            f'<rect x="{item.x - item.width / 2:.1f}" y="{top:.1f}" width="{item.width:.1f}" '
            f'height="{item.height:.1f}" fill="#fff"/>\n' + _text(item, top, ["label"] * len(item.lines), _LABEL_LINE)
        )
    radius = 4 if item.shape == "step" else 16
    return (
        f'<rect class="{item.shape}" x="{item.x - item.width / 2:.1f}" y="{top:.1f}" width="{item.width:.1f}" '
        f'height="{item.height:.1f}" rx="{radius}"/>\n'
        + _text(item, top + _PADDING / 2, ["name", *["model"] * (len(item.lines) - 1)], _LINE)
    )


def _text(item: _Item, top: float, classes: Sequence[str], line: float) -> str:
    return "\n".join(
        f'<text class="{style}" x="{item.x:.1f}" y="{top + (number + 0.72) * line:.1f}">{escape(text)}</text>'
        for number, (text, style) in enumerate(zip(item.lines, classes, strict=True))
    )
