"""The rows that a worker makes have the columns of the model's task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_makers
import pyarrow as pa
import pytest
import task_models

from savedmodel_bakery.answers.parquet import SCHEMAS
from savedmodel_bakery.serving.bulk.classifier import PHOTOS, Classifier, read_task
from savedmodel_bakery.wire.status import StatusError

NO_MASK = {"mask_counts": None, "mask_size": None}
TABLE = pa.table({"image": ["a", "b", "c"], "content": [b"?", b"bad", None], "error": [None, None, "torn"]}, PHOTOS)


@pytest.mark.parametrize(
    ("make", "task", "column", "cells"),
    [
        (
            task_models.detector,
            "detect",
            "boxes",
            [
                {"label": "cat", "score": 0.75, "ymin": 1, "xmin": 2, "ymax": 30, "xmax": 14, **NO_MASK},
                {"label": "dog", "score": 0.5, "ymin": 0, "xmin": 0.5, "ymax": 10, "xmax": 19, **NO_MASK},
            ],
        ),
        (task_models.segmenter, "segment", "shares", [("road", 1 / 2), ("tree", 1 / 6), ("car", 1 / 3)]),
        (
            model_makers.sizing,
            "classify",
            "top",
            [{"label": "1", "score": 0.5, "class_id": 1}, {"label": "other", "score": 0.25, "class_id": 0}],
        ),
    ],
    ids=["detector", "segmenter", "classifier"],
)
def test_each_photo_has_a_row_of_the_task(tmp_path: Path, make: Any, task: str, column: str, cells: Any) -> None:
    version = ("m", 7, str(make(tmp_path)))
    assert task == read_task(*version)
    rows = Classifier(*version)(TABLE)
    assert SCHEMAS[task] == rows.schema
    assert [(True, None), (False, "no image"), (False, "torn")] == list(
        zip(rows["ok"].to_pylist(), rows["error"].to_pylist(), strict=True)
    )
    good, *others = rows[column].to_pylist()
    assert [pytest.approx(cell) if isinstance(cell, dict) else (cell[0], pytest.approx(cell[1])) for cell in cells] == [
        cell if isinstance(cell, dict) else tuple(cell) for cell in good
    ]
    assert [[], []] == others


@pytest.mark.parametrize("load", [Classifier, read_task])
def test_a_model_without_a_task_is_an_error(tmp_path: Path, load: Callable[[str, int, str], object]) -> None:
    path = model_makers.half_plus(tmp_path, 1)
    with pytest.raises(StatusError, match='model "m" version 1 does not take photos: none of its signatures'):
        load("m", 1, str(path))


@pytest.mark.parametrize(("content", "error"), [(b"\xff", "is damaged"), (b"", "is damaged"), (None, "cannot read")])
def test_a_version_without_signatures_has_no_task(tmp_path: Path, content: bytes | None, error: str) -> None:
    if content is not None:
        (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(StatusError, match=error):
        read_task("m", 1, str(tmp_path))
