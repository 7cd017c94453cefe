"""The tasks that return labels: classify, and binary, which has the same outputs; and multilabel."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from savedmodel_bakery.answers.signatures import TOP_K_SIGNATURE
from savedmodel_bakery.answers.task import ImageResult, Row, Scores, Task, as_text, first_scores
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire.status import Code


@dataclass(frozen=True)
class ScoredLabel:
    """One class of an image: its label, its score (a probability, 0 to 1) and its index in the model's classes."""

    label: str
    score: float
    class_id: int


@dataclass(frozen=True, eq=False, repr=False)
class Classification(ImageResult):
    """The classes of one image.

    Attributes:
        ok: whether the image could be read.
        error: the reason if it could not; None if `ok`.
        label: the best class, None if not `ok`: the one with the highest score, or with task binary the one that the
            model's threshold decides for.
        top: the best classes, best first; empty if not `ok`.
    """

    label: str | None = None
    top: tuple[ScoredLabel, ...] = ()

    @property
    def score(self) -> float | None:
        """The score of `label`; None if there is none."""
        return self.top[0].score if self.top else None

    def to_dict(self) -> dict[str, Any]:
        """See `ImageResult.to_dict`; with `score`."""
        return {"ok": self.ok, "label": self.label, "score": self.score, **self._task.document(self)}


class _Classify(Task[Classification]):
    name = "classify"
    title = "classify or binary"
    signature = TOP_K_SIGNATURE
    outputs: ClassVar = {"labels": "nk", "scores": "nk", "class_ids": "nk"}
    optional_outputs: ClassVar = {"label": "n"}  # of a head
    result = Classification
    score_column = 1

    def read_row(self, row: Row) -> Classification:
        columns = (row[alias].tolist() for alias in ("labels", "scores", "class_ids"))
        top = tuple(ScoredLabel(as_text(label), score, number) for label, score, number in zip(*columns, strict=True))
        return Classification(ok=True, error=None, label=top[0].label if top else None, top=top)

    def cells(self, result: Classification) -> dict[str, Any]:
        return {"label": result.label, "error": result.error, "top": [asdict(scored) for scored in result.top]}

    def labels_and_scores(self, row: Mapping[str, Any]) -> tuple[Hashable, Scores]:
        return row["label"], first_scores(row["top"])

    def lines(self, result: Classification) -> list[str]:
        return [f"{scored.label}\t{scored.score:.3f}\t{scored.class_id}" for scored in result.top]


CLASSIFY = _Classify()


def keep_top(result: Classification, top_k: int | None) -> Classification:
    """Return a classification with the best `top_k` classes only; refuse more than the model returns."""
    if top_k is None or not result.ok:
        return result
    if top_k > len(result.top):
        raise RequestRefusedError(
            Code.INVALID_ARGUMENT, f"top_k {top_k} is too large: the model returns {len(result.top)} classes"
        )
    return Classification(result.ok, result.error, result.label, result.top[:top_k])


@dataclass(frozen=True)
class Tag:
    """One label that an image has, and its score (a probability, 0 to 1)."""

    label: str
    score: float


@dataclass(frozen=True, eq=False, repr=False)
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
    outputs: ClassVar = {"labels": "nk", "scores": "nk", "count": "n"}
    result = Tags
    score_column = 1

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
