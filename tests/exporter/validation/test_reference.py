"""The reference pipeline, on pictures whose pixels can be told by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.validation import reference

PreprocessingOf = Callable[..., Preprocessing]
RAMP = np.arange(5 * 8 * 3, dtype=np.uint8).reshape(5, 8, 3)


def saved(path: Path, levels: np.ndarray, **options: Any) -> Path:
    Image.fromarray(levels).save(path, **options)
    return path


def test_an_odd_margin_leaves_its_larger_half_above_and_to_the_left(preprocessing_of: PreprocessingOf) -> None:
    """4 of 5 rows and 4 of 8 columns: one row is left out above, two columns on either side."""
    found = reference.fit(Image.fromarray(RAMP), preprocessing_of(size=(4, 4), crop="4/5", resize="nearest"))
    np.testing.assert_array_equal(RAMP[1:, 2:6], found)


def test_a_letterbox_fits_the_whole_into_the_middle(preprocessing_of: PreprocessingOf) -> None:
    found = reference.fit(
        Image.fromarray(RAMP), preprocessing_of(size=(8, 8), crop="letterbox", resize="nearest", padding="9,8,7")
    )
    np.testing.assert_array_equal(RAMP, found[1:6])
    assert {(9, 8, 7)} == {tuple(pixel) for row in (0, 6, 7) for pixel in found[row].astype(int).tolist()}


def test_half_transparent_black_on_white_is_gray(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    photo = saved(tmp_path / "half.png", np.full((2, 2, 4), (0, 0, 0, 128), np.uint8))
    assert (127, 127, 127) == reference.read_upright(photo, preprocessing_of()).getpixel((1, 1))
    green = preprocessing_of(background="0,255,0")
    assert (0, 127, 0) == reference.read_upright(photo, green).getpixel((1, 1))


def test_16_bits_of_gray_count_by_their_upper_half(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    photo = saved(tmp_path / "deep.png", np.array([[0x12FF, 0xFF00]], np.uint16))
    read = reference.read_upright(photo, preprocessing_of())
    assert [(0x12,) * 3, (0xFF,) * 3] == [read.getpixel((column, 0)) for column in (0, 1)]


def test_it_is_upright(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = saved(tmp_path / "turned.png", RAMP, exif=exif)
    np.testing.assert_array_equal(np.rot90(RAMP, -1), np.asarray(reference.read_upright(photo, preprocessing_of())))


@pytest.mark.parametrize(
    ("channels", "expected"), [("RGB", [0, 1, 2]), ("BGR", [2, 1, 0]), ("GRAY", [0.299 * 0 + 0.587 * 1 + 0.114 * 2])]
)
def test_what_the_network_sees(preprocessing_of: PreprocessingOf, channels: str, expected: list[float]) -> None:
    preprocessing = preprocessing_of(channels=channels, scale="10:5")
    found = reference.normalise(np.array([[[[10.0, 15.0, 20.0]]]], np.float32), preprocessing)
    np.testing.assert_allclose([[[expected]]], found, atol=1e-6)


def test_what_pillow_cannot_read_is_refused_by_name(tmp_path: Path, preprocessing_of: PreprocessingOf) -> None:
    (tmp_path / "page.jpg").write_bytes(b"<html>")
    with pytest.raises(ParityError, match=r"page\.jpg cannot be read: cannot identify"):
        reference.read_upright(tmp_path / "page.jpg", preprocessing_of())
