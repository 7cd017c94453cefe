"""Task regress: numbers of an image."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from savedmodel_bakery.answers.task import ROW_OUTPUTS, ImageResult, Row, Scores, Task


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
    method = "regress"
    columns = ("error", "values")
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
