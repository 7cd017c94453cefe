"""How the answers of two versions to the same photos are compared."""

from __future__ import annotations

from typing import Any

import pytest

from savedmodel_bakery.client.bulk.rows import Row
from savedmodel_bakery.client.rollout.evidence import Agreement, compare_rows


def top(*scores: float, labels: str = "abc") -> Row:
    scored = [{"label": label, "score": score} for label, score in zip(labels, scores, strict=False)]
    return {"ok": True, "label": labels[0], "top": scored}


def tags(**scores: float) -> Row:
    return {"ok": True, "tags": [{"label": label, "score": score} for label, score in scores.items()]}


def boxes(*scored: tuple[str, float]) -> Row:
    return {"ok": True, "boxes": [{"label": label, "score": score} for label, score in scored]}


def row(column: str, value: Any) -> Row:
    return {"ok": True, column: value}


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
        ([BAD], [BAD], Agreement(0, 0, 0.0)),
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
        "only bad photos",
    ],
)
def test_labels_and_scores_of_all_tasks_are_compared(rows: list[Row], others: list[Row], agreement: Agreement) -> None:
    assert agreement == compare_rows(dict(enumerate(map(dict, rows))), dict(enumerate(map(dict, others))))
