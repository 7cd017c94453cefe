"""How the answers of two versions to the same photos are compared."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from png import Writer

from savedmodel_bakery.answers.photo_files import FileList
from savedmodel_bakery.answers.rows import Row
from savedmodel_bakery.answers.tasks import TASKS
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.answers.tasks.numbers import TENSORS, Tensors
from savedmodel_bakery.client.rollout import RolloutError, evidence
from savedmodel_bakery.client.rollout.evidence import Agreement, Limits, compare_on_photos, compare_rows

COLUMNS = dict(
    zip(("top", "tags", "embedding", "boxes", "shares", "points", "png", "heads", "values", "npz"), TASKS, strict=True)
)


def top(*scores: float, labels: str = "abc") -> Row:
    scored = [{"label": label, "score": score} for label, score in zip(labels, scores, strict=False)]
    return {"ok": True, "label": labels[0], "top": scored}


def tags(**scores: float) -> Row:
    return {"ok": True, "tags": [{"label": label, "score": score} for label, score in scores.items()]}


def boxes(*scored: tuple[str, float]) -> Row:
    return {"ok": True, "boxes": [{"label": label, "score": score} for label, score in scored]}


def points(name: str, y: float, *, score: float | None = 0.5) -> Row:
    return {"ok": True, "points": [{"name": name, "y": y, "x": 0.0, "score": score}]}


def row(column: str, value: Any) -> Row:
    return {"ok": True, column: value}


def png(side: int, level: int = 0, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, (side, side), (level,) * 3 if mode == "RGB" else level).save(file, "PNG")
    return file.getvalue()


def deep_png(level: int) -> bytes:
    """A pixel of RGB with 16 bits each."""
    file = io.BytesIO()
    Writer(1, 1, greyscale=False, bitdepth=16).write(file, [[level] * 3])
    return file.getvalue()


def masks(*labelled: tuple[str, str]) -> Row:
    """Boxes with masks as run lengths."""
    return {"ok": True, "boxes": [{"label": label, "score": 0.5, "mask_counts": counts} for label, counts in labelled]}


def npz(mean: float) -> bytes:
    return TENSORS.file_content(Tensors(ok=True, error=None, tensors={"a": np.array([mean - 1, mean + 1])}))


BAD = {"ok": False, "label": None, "top": []}


@pytest.mark.parametrize(
    ("rows", "others", "agreement"),
    [
        ([top(0.75, 0.25)], [top(0.5, 0.5)], Agreement(1, 1, 0.25)),
        ([top(0.75, 0.25)], [top(0.5, 0.25, labels="bc")], Agreement(1, 0, 0.25)),
        ([top(0.75, 0.25, labels="aa")], [top(0.5)], Agreement(1, 1, 0.25)),
        ([top(1.0)], [top(1.0, labels="x")], Agreement(1, 0, 0.0)),
        ([top(1.0), BAD, BAD, top(0.5)], [top(1.0), BAD, top(0.5), BAD], Agreement(3, 1, 0.0)),
        ([tags(a=0.5, b=0.5), tags()], [tags(b=0.25, a=0.5), tags(a=0.5)], Agreement(2, 1, 0.125)),
        (
            [boxes(("a", 1.0), ("b", 0.5), ("a", 0.5))],
            [boxes(("b", 0.5), ("a", 0.5), ("a", 0.5))],
            Agreement(1, 1, 0.25),
        ),
        ([boxes(("a", 1.0), ("a", 0.5))], [boxes(("a", 1.0))], Agreement(1, 0, 0.0)),
        ([row("shares", {"a": 0.75, "b": 0.25})], [row("shares", {"a": 0.25, "b": 0.75})], Agreement(1, 0, 0.5)),
        ([row("embedding", [1.0, 0.0])], [row("embedding", [0.5, 0.0])], Agreement(1, 1, 0.25)),
        ([row("embedding", [1.0, 0.0])], [row("embedding", [1.0])], Agreement(1, 0, 0.0)),
        ([row("values", {"x": 3.0})], [row("values", {"x": 1.0})], Agreement(1, 1, 2.0)),
        ([points("a", 1.0)], [points("a", 4.0)], Agreement(1, 1, 1.0)),
        ([points("a", 1.0, score=None)], [points("b", 1.0, score=None)], Agreement(1, 0, 0.0)),
        ([row("png", png(8))], [row("png", png(8, 255))], Agreement(1, 1, 1.0)),
        ([row("png", png(8, 65535, "I;16"))], [row("png", png(8, 0, "I;16"))], Agreement(1, 1, 1.0)),
        ([row("png", deep_png(65535))], [row("png", deep_png(0))], Agreement(1, 1, 1.0)),
        ([row("png", png(8))], [row("png", png(9))], Agreement(1, 0, 0.0)),
        # The first mask of a has 2 of 4 pixels in common with the other one, whose union is all 4; scores are equal.
        (
            [masks(("a", "04"), ("a", "?"), ("b", "22"))],
            [masks(("a", "22"), ("b", "22"), ("a", "!"))],
            Agreement(1, 1, 0.125),
        ),
        ([row("npz", npz(3.0))], [row("npz", npz(1.0))], Agreement(1, 1, 2.0)),
        ([row("png", None) | {"ok": False}], [row("png", png(9))], Agreement(1, 0, 0.0)),
        ([BAD], [BAD], Agreement(0, 0, 0.0)),
        ([top(0.75, 0.25)], [top(math.nan, math.nan)], Agreement(1, 0, math.inf)),
        ([row("embedding", [1.0, 0.0])], [row("embedding", [1.0, math.inf])], Agreement(1, 0, math.inf)),
        ([row("values", {"x": math.inf})], [row("values", {"x": -math.inf})], Agreement(1, 0, math.inf)),
        (
            [row("values", {"x": math.nan, "y": math.inf})] * 2,
            [row("values", {"x": math.nan, "y": math.inf})] * 2,
            Agreement(2, 2, 0.0),
        ),
    ],
    ids=[
        "scores",
        "labels",
        "a label twice",
        "no label in common",
        "bad photos",
        "tags",
        "boxes",
        "fewer boxes",
        "shares",
        "vectors",
        "shorter vectors",
        "numbers",
        "points",
        "other points",
        "pictures",
        "pictures of 16 bits",
        "pictures of RGB with 16 bits",
        "pictures of other sizes",
        "masks",
        "no picture",
        "tensors",
        "only bad photos",
        "NaN in one",
        "infinite in one",
        "opposite infinities",
        "NaN and infinite in both",
    ],
)
def test_labels_and_scores_of_all_tasks_are_compared(rows: list[Row], others: list[Row], agreement: Agreement) -> None:
    [task] = {task for column, task in COLUMNS.items() if column in rows[0]}
    assert agreement == compare_rows(task, dict(enumerate(map(dict, rows))), dict(enumerate(map(dict, others))))


def answering(monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Row]) -> Any:
    """Return a rollout whose versions give these answers, one after the other."""
    remaining = iter(answers)
    monkeypatch.setattr(evidence, "_answer", lambda *_: (CLASSIFY, next(remaining)))
    return SimpleNamespace(report=lambda _: None)


@pytest.mark.parametrize(("score", "limit"), [(math.nan, 1.0), (math.inf, 1.0), (0.5, math.nan)])
def test_scores_that_are_not_numbers_are_never_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, score: float, limit: float
) -> None:
    rollout = answering(monkeypatch, {"a": top(0.5)}, {"a": top(score)})
    with pytest.raises(RolloutError, match="scores differ too much"):
        compare_on_photos(rollout, FileList(()), Limits(0.0, limit), stable=1, canary=2)


def test_photos_that_change_between_the_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for first, second in (({"a": top(1.0)}, {}), ({}, {"a": top(1.0)})):
        rollout = answering(monkeypatch, {"b": top(1.0)} | first, {"b": top(1.0)} | second)
        with pytest.raises(RolloutError, match=r"photos were added or removed while .* such as a: "):
            compare_on_photos(rollout, FileList(()), Limits(0.0, 1.0), stable=1, canary=2)
