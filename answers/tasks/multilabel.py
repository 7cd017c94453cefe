"""Task multilabel: all labels that an image has."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text, first_scores


@dataclass(frozen=True)
class Tag:
    """One label that an image has, and its score (a probability, 0 to 1)."""

    label: str
    score: float


@dataclass(frozen=True)
class Tags(ImageResult):
    """The labels of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        tags: the labels whose score reaches the model's threshold, best first; may be empty.
    """

    tags: tuple[Tag, ...] = ()


class _Multilabel(Task[Tags]):
    name = "multilabel"
    method = "tags"
    columns = ("error", "tags")
    outputs: ClassVar = {"labels": "nk", "scores": "nk", "count": "n"}
    result = Tags

    def read_row(self, row: Row) -> Tags:
        columns = (row[alias][: row["count"]].tolist() for alias in ("labels", "scores"))
        tags = tuple(Tag(as_text(label), score) for label, score in zip(*columns, strict=True))
        return Tags(ok=True, error=None, tags=tags)

    def cells(self, result: Tags) -> dict[str, Any]:
        return {"error": result.error, "tags": [asdict(tag) for tag in result.tags]}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return frozenset(tag["label"] for tag in row["tags"]), first_scores(row["tags"])

    def lines(self, result: Tags) -> list[str]:
        return [f"{tag.label}\t{tag.score:.3f}" for tag in result.tags]


MULTILABEL = _Multilabel()
