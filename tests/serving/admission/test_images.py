"""The pixels that image files claim."""

from __future__ import annotations

import base64
import io
import struct

import pytest
from PIL import Image

from savedmodel_bakery.serving.admission.images import claimed_pixels


def encoded(image_format: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 40)).save(file, image_format)
    return file.getvalue()


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "GIF", "BMP", "WEBP"])
def test_files_and_their_base64(image_format: str) -> None:
    file = encoded(image_format)
    forms = [file, base64.b64encode(file), base64.urlsafe_b64encode(file), base64.encodebytes(file)]
    forms.append(b"data:image/x;base64," + base64.b64encode(file))
    assert [2400] * 5 == [claimed_pixels(form) for form in forms]


def test_only_the_header_is_read() -> None:
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 10_000, 10_000, 8, 2, 0, 0, 0)
    assert 100_000_000 == claimed_pixels(header)


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"<svg width='9' height='9'/>", b"\xff\xd8\xff", b"\x89PNG\r\n", b"data:", b"/9j/====", b"RIFF" * 9],
)
def test_other_values_claim_nothing(value: bytes) -> None:
    assert 0 == claimed_pixels(value)
