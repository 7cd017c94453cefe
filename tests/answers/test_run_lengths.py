"""Masks as COCO's run lengths."""

from __future__ import annotations

import numpy as np
import pytest
from coco_masks import RECORDED

from savedmodel_bakery.answers.run_lengths import decode_mask, iou


@pytest.mark.parametrize("name", RECORDED)
def test_a_mask_is_decoded_as_pycocotools_does(name: str) -> None:
    mask, counts = RECORDED[name]
    decoded = decode_mask(counts, mask.shape)
    assert np.dtype(bool) == decoded.dtype
    np.testing.assert_array_equal(mask, decoded)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ("<0", "it has 12 pixels: must be 15, of 5x3"),
        ("", "it has 0 pixels"),
        ("T", "it ends within a number"),
        ("L", "it has a run of -4 pixels"),
        ("4~", "invalid character '~': must be from '0' to 'o'"),
        ("é", "'ascii' codec can't encode"),
    ],
)
def test_other_texts_are_rejected(counts: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_mask(counts, (3, 5))


def test_two_masks_overlap_by_their_intersection_over_union() -> None:
    assert 1.0 == iou("<", "<") == iou("42102", "42102") == iou("0<", "0<")
    assert 0.0 == iou("<", "42102") == iou("0<", "<") == iou("0<", "0=")
    assert pytest.approx(4 / 12) == iou("0<", "42102")
