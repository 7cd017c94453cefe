"""Resizing of the reference pipeline equals tf.image.resize, Pillow and weights computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.exporter.recipe import RESIZE_METHODS
from savedmodel_bakery.exporter.validation import resampling

LEVELS = np.random.default_rng(7).integers(0, 256, (37, 53, 3)).astype(np.float32)
SIZES = [(8, 11), (37, 53), (20, 90), (100, 101), (1, 1)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", RESIZE_METHODS)
def test_it_equals_tf_image_resize(method: str, antialias: bool, size: tuple[int, int]) -> None:
    """In levels of 255. TensorFlow uses a table of 1024 weights for bicubic without antialiasing.

    The gaussian isn't zero at its radius, so rounding decides whether a sample there counts.
    """
    resized = resampling.resize(LEVELS, size, method=method, antialias=antialias)
    expected = tf.image.resize(LEVELS, size, method=method, antialias=antialias)
    atol = {"gaussian": 1.0, "bicubic": 0.2}.get(method, 0.01)
    np.testing.assert_allclose(np.asarray(expected, np.float64), resized, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("method", "filter_"),
    [
        ("bilinear", Image.Resampling.BILINEAR),
        ("bicubic", Image.Resampling.BICUBIC),
        ("lanczos3", Image.Resampling.LANCZOS),
    ],
)
def test_with_antialiasing_it_equals_pillow(method: str, filter_: Image.Resampling) -> None:
    channel = Image.fromarray(LEVELS[..., 0])
    expected = np.asarray(channel.resize((11, 8), filter_))
    resized = resampling.resize(LEVELS[..., :1], (8, 11), method=method, antialias=True)[..., 0]
    np.testing.assert_allclose(expected, resized, rtol=0, atol=1e-3)


BY_HAND = {
    "area of a half": ("area", True, 2, 1, [[0.5, 0.5]]),
    "area of three in two": ("area", False, 3, 2, [[2 / 3, 1 / 3, 0], [0, 1 / 3, 2 / 3]]),
    "nearest takes the upper of two": ("nearest", False, 4, 2, [[0, 1, 0, 0], [0, 0, 0, 1]]),
    "bilinear between two": ("bilinear", False, 4, 2, [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]),
    "antialiased bilinear is twice as wide": ("bilinear", True, 4, 2, [[3, 3, 1, 0], [0, 1, 3, 3]]),
}


@pytest.mark.parametrize(("method", "antialias", "length", "output_length", "rows"), BY_HAND.values(), ids=BY_HAND)
def test_weights_by_hand(
    method: str, antialias: bool, length: int, output_length: int, rows: list[list[float]]
) -> None:
    expected = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(
        expected, resampling.weights(length, output_length, method=method, antialias=antialias), atol=1e-12
    )
