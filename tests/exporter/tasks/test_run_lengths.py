"""Run lengths in the graph."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from coco_masks import RECORDED

from savedmodel_bakery.exporter.tasks.run_lengths import encode_changes


@pytest.mark.parametrize("name", RECORDED)
def test_a_mask_is_encoded_as_pycocotools_does(name: str) -> None:
    mask, counts = RECORDED[name]
    pixels = mask.reshape(-1, order="F")
    changes = np.flatnonzero(np.diff(pixels, prepend=False))
    ends_set = [pixels.size] if pixels[-1] else []
    for extra in ([], [2, 2], [2, 2, 2, 2]):  # a run without pixels
        encoded = encode_changes(
            tf.constant(sorted([*changes, *ends_set, *extra]), tf.int64), tf.constant(pixels.size, tf.int64)
        )
        assert counts == encoded.numpy().decode()
