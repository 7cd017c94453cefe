"""Rows of photos that are classified in one request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import canned_models
import pytest

from savedmodel_bakery.answers.photo import Photo, unreadable_photo
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.rows import make_photo_rows
from savedmodel_bakery.answers.signatures import TensorSpec
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code


def test_photos_with_the_same_key_have_their_own_rows() -> None:
    """Classifications belong to positions: on Ray, a request may contain a photo twice."""
    same_key = [Photo("a", 1, lambda: b"1"), unreadable_photo("a", "torn"), Photo("a", 1, lambda: b"2")]

    def predict(photos: list[Any]) -> Prediction:
        return Prediction(canned_models.labelled([image for image, _ in photos]), "m", 1, "s")

    assert ["1", None, "2"] == [
        row["label"] for row in make_photo_rows(same_key, predict, task=CLASSIFY, model="m", signature="s")
    ]


def test_a_request_that_an_overloaded_server_refuses_is_not_split() -> None:
    sizes = []

    def predict(photos: list[Any]) -> Prediction:
        sizes.append(len(photos))
        raise RequestRefusedError(Code.RESOURCE_EXHAUSTED, "overloaded", retry_after_s=60)

    photos = [Photo("a", 1, lambda: b"1"), Photo("b", 1, lambda: b"2")]
    with pytest.raises(RequestRefusedError, match="overloaded"):
        make_photo_rows(photos, predict, task=CLASSIFY, model="m", signature="s")
    assert [2] == sizes


def test_values_that_a_model_cannot_take_affect_their_own_row(tmp_path: Path) -> None:
    """They come from a list: text of a CSV file, or values of a Parquet file. A second image is a path, or bytes."""
    second = tmp_path / "second.png"
    second.write_bytes(b"second")
    others = {"tab": TensorSpec(dtypes.BY_NAME["float"], (-1, 2)), "image_2": TensorSpec(dtypes.STRING, (-1,))}
    columns: list[dict[str, Any]] = [
        {"tab": "[1, 2]", "image_2": str(second), "unused": "x"},
        {"tab": [3, 4.5], "image_2": b"bytes"},
        {"tab": "[1]", "image_2": b"bytes"},
        {"tab": "?", "image_2": b"bytes"},
        {"tab": None, "image_2": b"bytes"},
        {"tab": [1, 2], "image_2": "missing.png"},
        {"tab": [1, 2]},
    ]
    photos = [Photo(str(place), 1, lambda: b"1", each) for place, each in enumerate(columns)]
    sent: list[Any] = []

    def predict(photos: list[Any]) -> Prediction:
        sent.extend(photos)
        return Prediction(canned_models.labelled([image for image, _ in photos]), "m", 1, "s")

    rows = make_photo_rows(photos, predict, task=CLASSIFY, model="m", signature="s", others=others)
    assert [(b"1", {"tab": [1, 2], "image_2": b"second"}), (b"1", {"tab": [3, 4.5], "image_2": b"bytes"})] == sent
    assert [
        None,
        None,
        'input "tab" is float32[1,1] for 1 photos: must be float32[?,2]',
        "invalid input \"tab\" '?': must be JSON, as it is float32[?,2]",
        'input "tab" contains None; it must be an array',
        "cannot be read: No such file or directory",
        "the photo has no 'image_2': it must be in a .csv or .parquet file with such a column",
    ] == [row["error"] for row in rows]
