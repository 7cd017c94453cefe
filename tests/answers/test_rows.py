"""Rows of photos that are classified in one request."""

from __future__ import annotations

import canned_models
import pytest

from savedmodel_bakery.answers.photo import Photo, unreadable_photo
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.rows import make_photo_rows
from savedmodel_bakery.answers.tasks.labels import CLASSIFY
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire.status import Code


def test_photos_with_the_same_key_have_their_own_rows() -> None:
    """Classifications belong to positions: on Ray, a request may contain a photo twice."""
    same_key = [Photo("a", 1, lambda: b"1"), unreadable_photo("a", "torn"), Photo("a", 1, lambda: b"2")]

    def predict(images: list[bytes]) -> Prediction:
        return Prediction(canned_models.labelled(images), "m", 1, "s")

    assert ["1", None, "2"] == [
        row["label"] for row in make_photo_rows(same_key, predict, task=CLASSIFY, model="m", signature="s")
    ]


def test_a_request_that_an_overloaded_server_refuses_is_not_split() -> None:
    sizes = []

    def predict(images: list[bytes]) -> Prediction:
        sizes.append(len(images))
        raise RequestRefusedError(Code.RESOURCE_EXHAUSTED, "overloaded", retry_after_s=60)

    photos = [Photo("a", 1, lambda: b"1"), Photo("b", 1, lambda: b"2")]
    with pytest.raises(RequestRefusedError, match="overloaded"):
        make_photo_rows(photos, predict, task=CLASSIFY, model="m", signature="s")
    assert [2] == sizes
