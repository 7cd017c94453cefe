"""Prints the results of `ask`, and writes vectors, maps and drawings to files."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.client.bulk.rows import Row, row_json
from savedmodel_bakery.client.image_results import (
    Classification,
    Detections,
    Embedding,
    ImageResult,
    Regression,
    Segmentation,
    Tags,
)
from savedmodel_bakery.client.tasks import DETECT, EMBED, SEGMENT, Task
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.label_files import Colour, LabelFileError, read_label_file

_OUT_SUFFIXES = {EMBED.name: ".npy", SEGMENT.name: ".png"}
_DRAW_SUFFIXES = {DETECT.name: ".png", SEGMENT.name: ".png"}


class Output:
    """The outputs of one run of `ask`.

    Args:
        task: of the model.
        photos: number of photos; if there are several, lines start with the name of their photo.
        top_k: number of classes to print; None for one, and for all as JSON.
        as_json: print rows as JSON instead of lines.
        out: file for a vector or a map.
        draw: file for the photo with boxes or a map.
        colours: label file with the colours of labels in `draw`.

    Attributes:
        top_k: as above.

    Raises:
        click.UsageError: `out` or `draw` does not fit the task, or there are several photos; `colours` is not a label
            file, or there is no drawing.
        MissingPackageError: drawing needs the extra `draw`, which is not installed.
    """

    def __init__(
        self,
        task: Task[Any],
        *,
        photos: int,
        top_k: int | None,
        as_json: bool,
        out: Path | None,
        draw: Path | None,
        colours: Path | None,
    ) -> None:
        _check_file("--out", out, task, _OUT_SUFFIXES, photos)
        _check_file("--draw", draw, task, _DRAW_SUFFIXES, photos)
        if draw is not None:
            with naming_extras("--draw", "draw"):
                import PIL  # noqa: F401 - fail before the request, not after it
        self.top_k = top_k
        self._has_names = photos > 1
        self._as_json = as_json
        self._out = out
        self._draw = draw
        self._colours = {} if colours is None else _read_colours(colours, draw)

    def write(self, photo: bytes, result: ImageResult, row: Row) -> None:
        """Print a photo's result and write its files.

        Raises:
            click.ClickException: a file cannot be written, or Pillow cannot read the photo.
        """
        if self._as_json:
            click.echo(row_json(row))
        else:
            for line in self._lines(result):
                click.echo(f"{row['image']}\t{line}" if self._has_names else line)
        if not result.ok:
            return
        if self._out is not None:
            _write(self._out, _file_content(result))
        if self._draw is not None:
            _write(self._draw, _drawing(photo, result, self._colours))

    def _lines(self, result: ImageResult) -> list[str]:
        """Return the lines of a result, with tabs between the columns."""
        match result:
            case Classification(top=top):
                return [f"{scored.label}\t{scored.score:.3f}\t{scored.class_id}" for scored in top[: self.top_k or 1]]
            case Tags(tags=tags):
                return [f"{tag.label}\t{tag.score:.3f}" for tag in tags]
            case Detections(boxes=boxes):
                return [
                    f"{box.ymin:.1f}\t{box.xmin:.1f}\t{box.ymax:.1f}\t{box.xmax:.1f}\t{box.label}\t{box.score:.3f}"
                    for box in boxes
                ]
            case Segmentation(shares=shares):
                largest_first = sorted(shares.items(), key=lambda item: -item[1])
                return [f"{label}\t{share:.3f}" for label, share in largest_first if share > 0]
            case Embedding(vector=vector):
                return [] if vector is None or self._out is not None else [json.dumps(vector.tolist())]
            case Regression(values=values):
                return [f"{name}\t{value:.6g}" for name, value in values.items()]
        raise TypeError(f"no lines for {type(result).__name__}")


def _check_file(option: str, path: Path | None, task: Task[Any], suffixes: dict[str, str], photos: int) -> None:
    if path is None:
        return
    if task.name not in suffixes:
        raise click.UsageError(f"{option} is for tasks {_join(suffixes)}; the model's task is {task.title}")
    if path.suffix.lower() != suffixes[task.name]:
        raise click.UsageError(f"invalid {option} {path}: must end with {suffixes[task.name]}")
    if photos != 1:
        raise click.UsageError(f"{option} is for one photo, but there are {photos}; for many photos use bulk")


def _file_content(result: ImageResult) -> bytes:
    if isinstance(result, Segmentation):
        return result.map_png
    import numpy as np

    assert isinstance(result, Embedding)
    assert result.vector is not None
    file = io.BytesIO()
    np.save(file, result.vector)
    return file.getvalue()


def _read_colours(path: Path, draw: Path | None) -> dict[str, Colour]:
    """Return the colours in a label file, by label."""
    if draw is None:
        raise click.UsageError("--colours is for --draw")
    try:
        return {label.name: label.colour for label in read_label_file(path) if label.colour}
    except LabelFileError as exc:
        raise click.UsageError(str(exc)) from exc
    except OSError as exc:
        raise click.UsageError(f"{path} cannot be read: {exc.strerror}") from exc


def _drawing(photo: bytes, result: ImageResult, colours: dict[str, Colour]) -> bytes:
    from savedmodel_bakery.client.drawing import draw_detections, draw_segmentation

    try:
        if isinstance(result, Segmentation):
            return draw_segmentation(photo, result, colours)
        assert isinstance(result, Detections)
        return draw_detections(photo, result, colours)
    except ValueError as exc:
        raise click.ClickException(f"cannot draw the result: {exc}") from exc


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as exc:
        raise click.UsageError(f"{path} cannot be written: {exc.strerror}") from exc


def _join(names: Collection[str]) -> str:
    return " and ".join(names)
