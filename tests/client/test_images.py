"""Images as inputs, and classifications from outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.client import (
    Classification,
    Client,
    InvalidResponseError,
    Prediction,
    RequestRefusedError,
    ScoredLabel,
)
from savedmodel_bakery.client.images import read_classifications
from savedmodel_bakery.wire.status import Code

Connect = Callable[..., Client]

SORREL = ScoredLabel("sorrel", 0.75, 339)
ZEBRA = ScoredLabel("zebra", 0.125, 340)
OX = ScoredLabel("ox", 0.0625, 345)


def test_each_image_has_a_label(connect: Connect) -> None:
    expected = [Classification(True, None, "sorrel"), Classification(True, None, "tabby")]
    assert expected == connect("efficientnet_lite0").classify_images([b"horse", b"cat"])


def test_an_image_can_be_a_path(connect: Connect, tmp_path: Path) -> None:
    photo = tmp_path / "horse.jpg"
    photo.write_bytes(b"horse")
    [classification] = connect("efficientnet_lite0").classify_images([photo])
    assert "sorrel" == classification.label


@pytest.mark.parametrize(
    ("options", "top"),
    [
        ({"top_k": 2}, (SORREL, ZEBRA)),
        ({"top_k": 3}, (SORREL, ZEBRA, OX)),
        ({"signature": "top_k"}, (SORREL, ZEBRA, OX)),
        ({"signature": "top_k", "top_k": 1}, (SORREL,)),
    ],
    ids=["best two", "all three", "by signature", "both"],
)
def test_scored_labels_come_best_first(connect: Connect, options: dict[str, Any], top: tuple[ScoredLabel, ...]) -> None:
    assert [Classification(True, None, "sorrel", top)] == connect("efficientnet_lite0").classify_images(
        [b"horse"], **options
    )


def test_a_bad_image_does_not_affect_the_others_with_top_k(connect: Connect) -> None:
    classifications = connect("efficientnet_lite0").classify_images([b"bad", b"horse"], top_k=1)
    assert [Classification(False, "no image", None), Classification(True, None, "sorrel", (SORREL,))] == classifications


def test_a_bad_image_fails_a_request_for_labels(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError, match=r"^INVALID_ARGUMENT: row 1 is no image"):
        connect("efficientnet_lite0").classify_images([b"horse", b"bad"])


def test_an_empty_list_of_images_sends_nothing(connect: Connect, peer: Any) -> None:
    before = peer.requests
    assert [] == connect("efficientnet_lite0").classify_images([])
    assert before == peer.requests


def test_more_classes_than_the_servable_has_are_refused_with_both_numbers(connect: Connect) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        connect("efficientnet_lite0").classify_images([b"horse"], top_k=4)
    expected = 'top_k 4 is too large: signature "top_k" of model "efficientnet_lite0" returns 3 classes'
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)


def test_a_signature_that_does_not_classify_images_is_an_error_with_its_outputs() -> None:
    prediction = Prediction({"y": np.zeros(1), "z": np.zeros(1)}, "m", 1, "s")
    with pytest.raises(InvalidResponseError) as caught:
        read_classifications(prediction, batch=1, top_k=None)
    expected = (
        'signature "s" of model "m" does not classify images: it has the outputs "y", "z"; expected "output_0" alone, '
        'or "labels", "scores", "class_ids", "ok", "error"'
    )
    assert expected == str(caught.value)


def test_top_k_below_one_is_a_value_error(connect: Connect) -> None:
    with pytest.raises(ValueError, match="invalid top_k 0: must be at least 1"):
        connect().classify_images([b"horse"], top_k=0)


def test_an_image_that_is_neither_bytes_nor_a_path_is_a_type_error(connect: Connect) -> None:
    with pytest.raises(TypeError, match="an image must be bytes or a path, not int"):
        connect().classify_images([7])  # type: ignore[list-item]


@pytest.mark.parametrize("images", ["horse.jpg", b"horse"], ids=["one path", "one image"])
def test_a_single_image_instead_of_a_list_is_a_type_error(connect: Connect, images: Any) -> None:
    with pytest.raises(TypeError, match="images must be a list of bytes or paths"):
        connect().classify_images(images)
