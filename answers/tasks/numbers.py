"""The tasks that return numbers: embed, the embedding of an image, and regress, values by name."""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from savedmodel_bakery.answers.task import ROW_OUTPUTS, ImageResult, Row, Scores, Task


@dataclass(frozen=True)
class Embedding(ImageResult):
    """The embedding of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        vector: float32 [d]; None if not `ok`.
    """

    vector: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether they have the same vector; arrays don't compare by `==` alone."""
        if not isinstance(other, Embedding):
            return NotImplemented
        vectors = np.asarray(self.vector), np.asarray(other.vector)
        return (self.ok, self.error) == (other.ok, other.error) and np.array_equal(*vectors)

    def __hash__(self) -> int:
        """Return a hash without the vector, which has none."""
        return hash((self.ok, self.error))


class _Embed(Task[Embedding]):
    name = "embed"
    outputs: ClassVar = {"embedding": "nd"}
    result = Embedding
    file_suffix = ".npy"

    def read_row(self, row: Row) -> Embedding:
        return Embedding(ok=True, error=None, vector=row["embedding"])

    def cells(self, result: Embedding) -> dict[str, Any]:
        return {"error": result.error, "embedding": [] if result.vector is None else result.vector.tolist()}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return len(row["embedding"]), dict(enumerate(row["embedding"]))

    def lines(self, result: Embedding) -> list[str]:
        return [] if result.vector is None else [json.dumps(result.vector.tolist())]

    def file_content(self, result: Embedding) -> bytes:
        assert result.vector is not None
        file = io.BytesIO()
        np.save(file, result.vector)
        return file.getvalue()


EMBED = _Embed()


@dataclass(frozen=True)
class Regression(ImageResult):
    """The numbers of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        values: name to number, sorted by name; a single number without a name is called `value`. Empty if not `ok`.
    """

    values: Mapping[str, float] = field(default_factory=dict)


class _Regress(Task[Regression]):
    name = "regress"
    result = Regression

    def read_row(self, row: Row) -> Regression:
        values = {alias: float(row[alias]) for alias in sorted(row.keys() - ROW_OUTPUTS.keys())}
        return Regression(ok=True, error=None, values=values)

    def cells(self, result: Regression) -> dict[str, Any]:
        return {"error": result.error, "values": dict(result.values)}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return frozenset(row["values"]), row["values"]

    def lines(self, result: Regression) -> list[str]:
        return [f"{name}\t{value:.6g}" for name, value in result.values.items()]


REGRESS = _Regress()
