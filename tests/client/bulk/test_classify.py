"""Rows of photos that are classified in one request."""

from __future__ import annotations

import numpy as np

from savedmodel_bakery.client.bulk.classify import classify_photos
from savedmodel_bakery.client.bulk.photos import Photo, unreadable_photo
from savedmodel_bakery.client.results import Prediction


def test_photos_with_the_same_key_have_their_own_rows() -> None:
    """Classifications belong to positions: on Ray, a request may contain a photo twice."""
    same_key = [Photo("a", 1, lambda: b"1"), unreadable_photo("a", "torn"), Photo("a", 1, lambda: b"2")]

    def predict(images: list[bytes]) -> Prediction:
        return Prediction({"output_0": np.array(images, object)}, "m", 1, "s")

    assert ["1", None, "2"] == [row["label"] for row in classify_photos(same_key, predict, model="m", signature="s")]
