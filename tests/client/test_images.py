"""Images as inputs of a model."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery.answers.images import encode_png, read_image
from savedmodel_bakery.client import Client, Regression
from savedmodel_bakery.extras import install_command

Connect = Callable[..., Client]

GRADIENT = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
OK = Regression(True, None, {"width": 1.5, "height": -1.0})
BAD = Regression(False, "no image")


def pixels_of(content: bytes | np.ndarray) -> np.ndarray:
    assert isinstance(content, bytes)
    assert content.startswith(b"\x89PNG")
    return np.array(Image.open(io.BytesIO(content)))


def test_an_image_is_bytes_a_path_or_a_binary_file(tmp_path: Path) -> None:
    photo = tmp_path / "horse.jpg"
    photo.write_bytes(b"horse")
    with photo.open("rb") as file:
        assert [b"horse"] * 5 == [
            read_image(image) for image in (b"horse", photo, str(photo), file, io.BytesIO(b"horse"))
        ]


MODES = ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "HSV"]


@pytest.mark.parametrize("mode", MODES)
def test_a_pillow_image_of_8_bits_becomes_a_png_file(mode: str) -> None:
    """It loses nothing more than by Pillow's own conversion, and keeps its transparency."""
    image = Image.fromarray(GRADIENT).convert("RGBA")
    image.putpixel((0, 0), (10, 20, 30, 0))
    image = image.convert("P").convert("PA") if mode == "PA" else image.convert(mode)
    shown = Image.open(io.BytesIO(read_image(image))).convert("RGBA")
    np.testing.assert_array_equal(np.asarray(image.convert("RGBA")), np.asarray(shown))


def test_a_pillow_image_of_mode_i_with_bytes_stays_as_it_looks() -> None:
    gray = Image.linear_gradient("L")
    np.testing.assert_array_equal(gray, Image.open(io.BytesIO(read_image(gray.convert("I")))))


def test_damaged_exif_data_of_a_pillow_image_are_ignored() -> None:
    image = Image.linear_gradient("L")
    image.info["exif"] = b"Exif\0\0no tiff"
    assert (256, 256) == Image.open(io.BytesIO(read_image(image))).size


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I"])
def test_a_pillow_image_of_16_bits_keeps_them(mode: str) -> None:
    """Also one of mode I, as Pillow opens other files of 16 bits."""
    levels = np.array([[0, 255, 256], [1000, 40_000, 65_535]])
    dtype = {"I;16": "<u2", "I;16L": "<u2", "I;16B": ">u2", "I": "i4"}[mode]
    image = Image.frombytes(mode, (3, 2), levels.astype(dtype).tobytes())
    np.testing.assert_array_equal(levels, pixels_of(read_image(image)))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.new("F", (2, 2), 0.5), "a Pillow image of mode F; must have integers"),
        (Image.new("I", (0, 2)), "a Pillow image of 0 by 2 pixels; must have pixels"),
        (Image.new("I", (2, 2), -1), "a Pillow image of mode I with values -1 to -1; must be 0 to 65535"),
        (Image.new("I", (2, 2), 70_000), "a Pillow image of mode I with values 70000 to 70000; must be 0 to 65535"),
    ],
    ids=["floats", "without pixels", "negative", "more than 16 bits"],
)
def test_a_pillow_image_without_a_known_range_is_refused(image: Image.Image, message: str) -> None:
    with pytest.raises(ValueError, match=f"^invalid image: {message}"):
        read_image(image)


def test_a_pillow_image_is_sent_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    Image.fromarray(GRADIENT).save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(np.rot90(GRADIENT, -1), pixels_of(read_image(Image.open(file))))


def test_an_array_as_png_has_the_same_pixels() -> None:
    np.testing.assert_array_equal(GRADIENT, pixels_of(encode_png(GRADIENT)))
    np.testing.assert_array_equal(GRADIENT[:, ::-1], pixels_of(encode_png(GRADIENT[:, ::-1])))


def test_an_array_of_the_networks_size_is_sent_as_pixels_and_others_as_png(connect: Connect, peer: Any) -> None:
    """The canned model reads no PNG, and a dark array only; results keep the order of the images."""
    client = connect("meter")
    dark, bright, other = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 9, np.uint8), np.zeros((3, 2, 3), np.uint8)
    assert [BAD, OK, BAD, OK, BAD] == client.regress([other, b"horse", bright, dark, b"?"])
    before = peer.requests
    assert OK == client.regress(dark)
    assert 1 == peer.requests - before


@pytest.mark.parametrize(
    ("image", "error", "message"),
    [
        pytest.param(
            "https://a.example/b.jpg", ValueError, "URLs are not fetched; pass a path, or the bytes", id="URL"
        ),
        pytest.param("S3://bucket/b.jpg", ValueError, 'invalid image "S3://bucket/b.jpg": URLs are', id="other URL"),
        pytest.param("missing.jpg", OSError, "No such file", id="missing file"),
        pytest.param(7, TypeError, "a Pillow image or a uint8 array, not int", id="number"),
        pytest.param(io.StringIO("horse"), TypeError, r"binary mode; read\(\) returned str", id="text file"),
        pytest.param(
            np.zeros((2, 2, 3), np.float32),
            ValueError,
            r"an array of float32 \[2, 2, 3\]; must be uint8 \[height, width, 3\]",
            id="float array",
        ),
        pytest.param(np.zeros((2, 2), np.uint8), ValueError, r"uint8 \[2, 2\]; must be", id="gray array"),
        pytest.param(np.zeros((0, 2, 3), np.uint8), ValueError, r"uint8 \[0, 2, 3\]; must be", id="empty array"),
        pytest.param((b"horse" for _ in range(1)), TypeError, "not generator", id="generator"),
        pytest.param([[b"horse"]], TypeError, "not list", id="nested list"),
    ],
)
def test_an_invalid_image_is_an_error_before_anything_is_sent(
    connect: Connect, peer: Any, image: Any, error: type[Exception], message: str
) -> None:
    before = peer.requests
    with pytest.raises(error, match=message):
        connect("meter").regress(image)
    assert before == peer.requests


def test_an_array_as_png_needs_the_extra(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        connect("meter").regress(GRADIENT)
    assert f"an image as an array needs PIL, which is not installed; try: {install_command('draw')}" == str(
        caught.value
    )
