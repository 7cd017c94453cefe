"""The reference pipeline, on pictures small enough to compute by hand; it resizes as tf.image.resize and Pillow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.recipe import RESIZE_METHODS, Preprocessing
from savedmodel_bakery.exporter.validation import reference

PreprocessingOf = Callable[..., Preprocessing]
RAMP = np.arange(5 * 8 * 3, dtype=np.uint8).reshape(5, 8, 3)
LEVELS = np.random.default_rng(7).integers(0, 256, (37, 53, 3)).astype(np.float32)
SIZES = [(8, 11), (37, 53), (20, 90), (100, 101), (1, 1)]


def saved(path: Path, levels: np.ndarray, **options: Any) -> Path:
    Image.fromarray(levels).save(path, **options)
    return path


def test_the_larger_half_of_an_odd_margin_is_at_the_top_and_left(preprocessing_of: PreprocessingOf) -> None:
    """4 of 5 rows and 4 of 8 columns: one row is cut off at the top, two columns on either side."""
    fitted = reference.fit(Image.fromarray(RAMP), preprocessing_of(size=(4, 4), crop="4/5", resize="nearest"))
    np.testing.assert_array_equal(RAMP[1:, 2:6], fitted)


def test_a_letterbox_places_the_whole_picture_in_the_middle(preprocessing_of: PreprocessingOf) -> None:
    fitted = reference.fit(
        Image.fromarray(RAMP), preprocessing_of(size=(8, 8), crop="letterbox", resize="nearest", padding="9,8,7")
    )
    np.testing.assert_array_equal(RAMP, fitted[1:6])
    assert {(9, 8, 7)} == {tuple(pixel) for row in (0, 6, 7) for pixel in fitted[row].astype(int).tolist()}


def test_half_transparent_black_on_white_is_gray(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    photo = saved(tmp_path / "half.png", np.full((2, 2, 4), (0, 0, 0, 128), np.uint8))
    assert (127, 127, 127) == reference.read_upright(photo, preprocessing_of()).getpixel((1, 1))
    green = preprocessing_of(background="0,255,0")
    assert (0, 127, 0) == reference.read_upright(photo, green).getpixel((1, 1))


def test_16_bit_gray_keeps_its_upper_8_bits(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    photo = saved(tmp_path / "deep.png", np.array([[0x12FF, 0xFF00]], np.uint16))
    picture = reference.read_upright(photo, preprocessing_of())
    assert [(0x12,) * 3, (0xFF,) * 3] == [picture.getpixel((column, 0)) for column in (0, 1)]


def test_the_picture_is_upright(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = saved(tmp_path / "turned.png", RAMP, exif=exif)
    np.testing.assert_array_equal(np.rot90(RAMP, -1), np.asarray(reference.read_upright(photo, preprocessing_of())))


@pytest.mark.parametrize(
    ("channels", "expected"), [("RGB", [0, 1, 2]), ("BGR", [2, 1, 0]), ("GRAY", [0.299 * 0 + 0.587 * 1 + 0.114 * 2])]
)
def test_normalised_pixels(preprocessing_of: PreprocessingOf, channels: str, expected: list[float]) -> None:
    preprocessing = preprocessing_of(channels=channels, scale="10:5")
    normalised = reference.normalise(np.array([[[[10.0, 15.0, 20.0]]]], np.float32), preprocessing)
    np.testing.assert_allclose([[[expected]]], normalised, atol=1e-6)


def test_an_unreadable_photo_is_rejected_by_name(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    (tmp_path / "page.jpg").write_bytes(b"<html>")
    with pytest.raises(ParityError, match=r"cannot read the photo .*page\.jpg: cannot identify"):
        reference.read_upright(tmp_path / "page.jpg", preprocessing_of())


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("method", RESIZE_METHODS)
def test_resizing_equals_tf_image_resize(method: str, antialias: bool, size: tuple[int, int]) -> None:
    """In levels of 255. TensorFlow uses a table of 1024 weights for bicubic without antialiasing.

    The gaussian isn't zero at its radius, so rounding decides whether a sample there counts.
    """
    resized = reference.resize(LEVELS, size, method=method, antialias=antialias)
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
def test_with_antialiasing_resizing_equals_pillow(method: str, filter_: Image.Resampling) -> None:
    channel = Image.fromarray(LEVELS[..., 0])
    expected = np.asarray(channel.resize((11, 8), filter_))
    resized = reference.resize(LEVELS[..., :1], (8, 11), method=method, antialias=True)[..., 0]
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
        expected, reference.weights(length, output_length, method=method, antialias=antialias), atol=1e-12
    )
