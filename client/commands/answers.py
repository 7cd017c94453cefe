"""Prints the results of `ask`, and writes vectors, maps and drawings to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from savedmodel_bakery.answers.rows import Row, to_json
from savedmodel_bakery.answers.task import ImageResult, Task
from savedmodel_bakery.answers.tasks import TASKS
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.answers.tasks.numbers import EMBED
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.label_files import Colour, LabelFileError, read_label_file

_OUT_SUFFIXES = {task.name: task.file_suffix for task in TASKS if task.file_suffix}
_DRAW_SUFFIXES = {task.name: ".png" for task in TASKS if task.can_draw}


class Output:
    """The outputs of one run of `ask` with these options. If there are several photos, lines start with their names."""

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
        self._task = task
        self._max_lines = 1 if task is CLASSIFY and top_k is None else None
        self._has_names = photos > 1
        self._as_json = as_json
        self._out = out
        self._draw = draw
        self._colours = {} if colours is None else _read_colours(colours, draw)

    def write(self, photo: bytes, result: ImageResult, row: Row) -> None:
        """Print a photo's result and write its files."""
        if self._as_json:
            click.echo(to_json(row))
        elif self._task is not EMBED or self._out is None:
            for line in self._task.lines(result)[: self._max_lines]:
                click.echo(f"{row['image']}\t{line}" if self._has_names else line)
        if not result.ok:
            return
        if self._out is not None:
            _write(self._out, self._task.file_content(result))
        if self._draw is not None:
            try:
                drawing = self._task.draw(photo, result, self._colours)
            except ValueError as exc:
                raise click.ClickException(f"cannot draw the result: {exc}") from exc
            _write(self._draw, drawing)


def _check_file(option: str, path: Path | None, task: Task[Any], suffixes: dict[str, str], photos: int) -> None:
    if path is None:
        return
    if task.name not in suffixes:
        raise click.UsageError(f"{option} is for tasks {', '.join(suffixes)}; the model's task is {task.title}")
    if path.suffix.lower() != suffixes[task.name]:
        raise click.UsageError(f"invalid {option} {path}: must end with {suffixes[task.name]}")
    if photos != 1:
        raise click.UsageError(f"{option} is for one photo, but there are {photos}; for many photos use bulk")


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


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as exc:
        raise click.UsageError(f"{path} cannot be written: {exc.strerror}") from exc
