"""Images as arguments of the methods for images."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery import Client, Regression
from savedmodel_bakery.extras import install_command

Connect = Callable[..., Client]

GRADIENT = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
OK = Regression(True, None, {"width": 1.5, "height": -1.0})
BAD = Regression(False, "no image")


def test_an_array_of_the_networks_size_is_sent_as_pixels_and_others_as_png(connect: Connect, peer: Any) -> None:
    """The canned model reads no PNG, and a dark array only; results keep the order of the images."""
    client = connect("meter")
    dark, bright, other = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 9, np.uint8), np.zeros((3, 2, 3), np.uint8)
    assert [BAD, OK, BAD, OK, BAD] == client.regress([other, b"horse", bright, dark, b"?"])
    before = peer.requests
    assert OK == client.regress(dark)
    assert 1 == peer.requests - before


def test_several_images_are_a_list_of_results(connect: Connect) -> None:
    client = connect("meter")
    dark = np.zeros((2, 2, 2, 3), np.uint8)
    assert [OK, OK] == client.regress(dark)
    assert [OK, OK] == client.regress(image for image in dark)
    assert [OK] == client.regress(dark[:1, ..., :1])
    assert OK == client.regress(dark[0, ..., 0])


def test_a_result_shows_the_photo_that_was_passed_as_a_path(connect: Connect, tmp_path: Path) -> None:
    """The canned model finds boxes in one image only, which Pillow cannot read."""
    (photo := tmp_path / "photo.png").write_bytes(b"horse")
    of_path, of_bytes = connect("detector").detect([photo, b"horse"])
    Image.fromarray(GRADIENT).save(photo)
    assert "<img" in of_path._repr_html_()
    assert "<img" not in of_bytes._repr_html_()


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
            r"an array of float32 \[2, 2, 3\]; must be uint8, levels 0 to 255, because the range of other types",
            id="float array",
        ),
        pytest.param(np.zeros((1, 2, 2, 3)), ValueError, r"an array of float64 \[2, 2, 3\]; must", id="float batch"),
        pytest.param(np.zeros((2, 2, 4), np.uint8), ValueError, r"\[2, 2, 4\]; .* alpha as a Pillow", id="4 channels"),
        pytest.param([np.zeros((1, 2, 2, 3), np.uint8)], ValueError, r"\[1, 2, 2, 3\]; must be", id="list of batches"),
        pytest.param(np.zeros((0, 2, 3), np.uint8), ValueError, r"uint8 \[0, 2, 3\]; must be", id="empty array"),
        pytest.param({"photo": b"horse"}, TypeError, "not dict", id="dict"),
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
