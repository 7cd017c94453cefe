"""The task heads: the answers of several tasks for one image, by the names of the network's heads.

Beside the signature with all outputs, which begin with the name of their head, such a model has a signature for each
head, of the name of the head.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.answers.task import ROW_OUTPUTS, ImageResult, Row, Scores, Task

if TYPE_CHECKING:
    import numpy as np

    from savedmodel_bakery.answers.signatures import TensorSpec


@dataclass(frozen=True, eq=False, repr=False)
class Heads(ImageResult):
    """The results of all heads for one image; the result of a head is also an attribute of its name.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        heads: name of the head to the result of its task.
    """

    heads: Mapping[str, ImageResult] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Return the result of a head."""
        # `copy` and `pickle` ask for attributes of their own before there are any.
        if name.startswith("__") or name not in self.heads:
            raise AttributeError(f"there is no head {name!r}, only {', '.join(vars(self).get('heads', ()))}")
        return self.heads[name]

    def _repr_html_(self) -> str:
        """Return the HTML of the results of the heads."""
        if not self.ok:
            return super()._repr_html_()
        return "".join(f"<h4>{escape(name)}</h4>{each._repr_html_()}" for name, each in self.heads.items())

    def keep_path(self, path: str | PathLike[str]) -> None:
        """See `ImageResult.keep_path`."""
        for each in self.heads.values():
            each.keep_path(path)


class HeadsTask(Task[Heads]):
    """The task of a model with these heads, each a task and the names of its outputs."""

    name = "heads"
    method = "answer"
    result = Heads

    def __init__(self, heads: Mapping[str, tuple[Task[Any], Sequence[str]]]) -> None:
        super().__init__()
        self._heads = heads

    def __eq__(self, other: object) -> bool:
        """Return whether they have the same heads."""
        return isinstance(other, HeadsTask) and self._heads == other._heads

    def __str__(self) -> str:
        """Return the tasks by head."""
        return f"task heads ({', '.join(f'{name}: {task.name}' for name, (task, _) in self._heads.items())})"

    def __hash__(self) -> int:
        """Return the hash of the names."""
        return hash(tuple(self._heads))

    def axes(self, arrays: Mapping[str, np.ndarray]) -> Mapping[str, Sequence[str]]:
        """See `Task.axes`; sizes are those of one head each. Outputs that are missing have axes too."""
        named = {}
        for name, (task, aliases) in self._heads.items():
            axes_of = task.axes(_outputs_of(name, aliases, arrays))
            for alias in aliases:
                axes = axes_of.get(alias, "n")
                named[f"{name}_{alias}"] = [
                    axis if axis == "n" or axis.isdigit() else f"{name} {axis}" for axis in axes
                ]
        return named

    def fits(self, outputs: Mapping[str, TensorSpec]) -> bool:
        """Return whether these are the outputs of the heads."""
        own = {f"{name}_{alias}" for name, (_, aliases) in self._heads.items() for alias in aliases}
        return bool(own) and own | ROW_OUTPUTS.keys() == outputs.keys()

    def failed(self, error: str) -> Heads:
        """See `Task.failed`."""
        return Heads(False, error, {name: task.failed(error) for name, (task, _) in self._heads.items()})

    def read_row(self, row: Row) -> Heads:
        """See `Task.read_row`."""
        heads = {name: task.read_row(_outputs_of(name, aliases, row)) for name, (task, aliases) in self._heads.items()}
        return Heads(ok=True, error=None, heads=heads)

    def cells(self, result: Heads) -> dict[str, Any]:
        """See `Task.cells`."""
        heads = {name: _without_error(each._task.cells(each)) for name, each in _read(result)}
        return {"error": result.error, "heads": heads}

    def document(self, result: Heads) -> dict[str, Any]:
        """Return the documents of the heads with their tasks."""
        heads = {
            name: {"task": each._task.name, **_without_error(each._task.document(each))} for name, each in _read(result)
        }
        return {"error": result.error, "heads": heads}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        """See `Task.labels_and_scores`."""
        labels: dict[str, Hashable] = {}
        scores: Scores = {}
        for name, cells in row["heads"].items():
            labels[name], own = self._heads[name][0].labels_and_scores(cells)
            scores |= {(name, key): score for key, score in own.items()}
        return frozenset(labels.items()), scores

    def lines(self, result: Heads) -> list[str]:
        """See `Task.lines`."""
        return [f"{name}\t{line}" for name, each in _read(result) for line in each._task.lines(each)]


HEADS = HeadsTask({})
"""The task without heads, which no model has."""


def _read(result: Heads) -> list[tuple[str, Any]]:
    """Return the results of the heads by name; none if the image could not be read."""
    return [*result.heads.items()] if result.ok else []


def _without_error(cells: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cells.items() if name != "error"}


def _outputs_of(name: str, aliases: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a head, without its name, and those of all tasks."""
    own = {alias: row[f"{name}_{alias}"] for alias in aliases if f"{name}_{alias}" in row}
    return own | {alias: row[alias] for alias in ROW_OUTPUTS if alias in row}
