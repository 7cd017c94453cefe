"""Photos with ICC profiles in sRGB."""

from __future__ import annotations

import io
from typing import Any

import colour_profiles
import numpy as np
import pytest
from PIL import ExifTags, Image

from savedmodel_bakery.answers.images import to_srgb

P3 = colour_profiles.profile("Display P3")
LEVELS = np.uint8([[[200, 50, 50], [10, 220, 30], [128, 128, 128]]])


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def test_colours_of_another_profile_become_srgb() -> None:
    converted = to_srgb(encoded(Image.fromarray(LEVELS), icc_profile=P3))
    with Image.open(io.BytesIO(converted)) as image:
        np.testing.assert_allclose(colour_profiles.to_srgb(LEVELS), np.asarray(image), atol=1.5)


def test_an_upright_photo_keeps_its_transparency() -> None:
    image = Image.fromarray(np.concatenate([LEVELS, np.uint8([[[255], [128], [0]]])], axis=-1))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # rotate by 90 degrees clockwise
    with Image.open(io.BytesIO(to_srgb(encoded(image, icc_profile=P3, exif=exif)))) as converted:
        pixels = np.asarray(converted)
    assert (3, 1, 4) == pixels.shape
    assert [255, 128, 0] == pixels[:, 0, 3].tolist()
    np.testing.assert_allclose(colour_profiles.to_srgb(LEVELS[0]), pixels[:, 0, :3], atol=1.5)


@pytest.mark.parametrize(
    "photo",
    [
        encoded(Image.fromarray(LEVELS)),
        encoded(Image.fromarray(LEVELS), "JPEG", icc_profile=colour_profiles.profile("sRGB IEC61966-2.1")),
        encoded(Image.fromarray(LEVELS), icc_profile=b"damaged"),
        encoded(Image.fromarray(LEVELS), icc_profile=bytes(2**21)),
        encoded(Image.fromarray(np.uint16([[40000]])), icc_profile=P3),
        b"<html>",
    ],
    ids=["no profile", "sRGB", "damaged profile", "too large a profile", "16 bits", "no image"],
)
def test_other_photos_stay_as_they_are(photo: bytes) -> None:
    assert photo == to_srgb(photo)
