"""Images as inputs of a model."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery.client import Client, Regression
from savedmodel_bakery.client.images import encode_png, read_image
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


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "F", "I", "I;16"])
def test_a_pillow_image_of_any_mode_becomes_a_png_file(mode: str) -> None:
    """Only RGB and RGBA are compared: others lose nothing more than Pillow's own conversion."""
    image = Image.fromarray(GRADIENT).convert("I" if mode == "I;16" else mode).convert(mode)
    pixels = pixels_of(read_image(image))
    assert (2, 3) == pixels.shape[:2]
    if mode in ("RGB", "RGBA"):
        np.testing.assert_array_equal(GRADIENT, pixels[..., :3])


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
