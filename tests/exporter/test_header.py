"""Sizes and orientations are read from headers as Pillow reads them, and nothing that is in a file makes that fail."""

from __future__ import annotations

import io
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from exporter import recipe, resources
from exporter.image import header, isolation, pixels

RECIPE = {
    "model": "m",
    "labels": "imagenet",
    "size": (16, 16),
    "crop": "none",
    "resize": "bilinear",
    "antialias": False,
    "scale": "0..255",
    "channels": "RGB",
    "outputs": "probabilities",
}
TEXT = tf.TensorSpec([], tf.string)


@pytest.fixture(scope="module")
def picture_size() -> Any:
    return tf.function(lambda data: header.read_header(data)[:2], input_signature=[TEXT])


@pytest.fixture(scope="module")
def orientation() -> Any:
    return tf.function(lambda data: header.read_header(data)[2], input_signature=[TEXT])


@pytest.fixture(scope="module")
def decode() -> Any:
    chosen = recipe.complete(RECIPE)
    return tf.function(lambda data: pixels.decode_file(data, chosen), input_signature=[TEXT])


def photo(width: int = 30, height: int = 20) -> Image.Image:
    with Image.open(resources.folder("examples") / "rocket.jpg") as opened:
        return opened.convert("RGB").resize((width, height))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


def tiff(order: str, value: int, *, kind: int = 3, before: int = 0) -> bytes:
    """An EXIF block: `before` other tags, then Orientation of type `kind` (3 SHORT, 4 LONG)."""
    mark = "<" if order == "II" else ">"
    entries = [struct.pack(mark + "HHII", 0x0001 + number, 4, 1, 7) for number in range(before)]
    if kind == 3:
        entries.append(struct.pack(mark + "HHIHH", 0x0112, 3, 1, value, 0))
    else:
        entries.append(struct.pack(mark + "HHII", 0x0112, kind, 1, value))
    head = order.encode() + struct.pack(mark + "HI", 42, 8)
    return b"Exif\0\0" + head + struct.pack(mark + "H", len(entries)) + b"".join(entries) + b"\0\0\0\0"


def segment(marker: int, contents: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(contents) + 2) + contents


def with_segments(*segments: bytes) -> bytes:
    """A JPEG file with segments right after its start."""
    plain = saved(photo(), "JPEG", quality=95)
    return plain[:2] + b"".join(segments) + plain[2:]


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("value", range(1, 9))
def test_a_photo_is_turned_as_pillow_turns_it(decode: Any, orientation: Any, order: str, value: int) -> None:
    data = with_segments(segment(0xE1, tiff(order, value)))
    with Image.open(io.BytesIO(data)) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    assert value == orientation(data).numpy()
    np.testing.assert_array_equal(expected, decode(data).numpy())


EXIF_8 = segment(0xE1, tiff("MM", 8))
SEGMENTS = {
    "APP0 before": (with_segments(segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"), EXIF_8), 8),
    "XMP before": (with_segments(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x/>"), EXIF_8), 8),
    "a comment that looks like EXIF": (with_segments(segment(0xFE, EXIF_8)), 1),
    "a large profile before": (with_segments(*[segment(0xE2, b"ICC_PROFILE\0" + bytes(65000))] * 6, EXIF_8), 8),
    "fill bytes": (with_segments(b"\xff\xff\xff" + EXIF_8), 8),
    "other tags before": (with_segments(segment(0xE1, tiff("II", 6, before=40))), 6),
    "a LONG": (with_segments(segment(0xE1, tiff("MM", 3, kind=4))), 3),
    "value 0": (with_segments(segment(0xE1, tiff("II", 0))), 1),
    "value 9": (with_segments(segment(0xE1, tiff("II", 9))), 1),
    "a byte order of neither kind": (with_segments(segment(0xE1, tiff("II", 6).replace(b"II", b"IX"))), 1),
    "a directory beyond the end": (with_segments(segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xf0")), 1),
    "an empty block": (with_segments(segment(0xE1, b"Exif\0\0")), 1),
    "a text instead of a number": (with_segments(segment(0xE1, tiff("II", 6, kind=2))), 1),
    "none": (with_segments(), 1),
}


@pytest.mark.parametrize(("data", "expected"), SEGMENTS.values(), ids=SEGMENTS)
def test_where_the_orientation_may_stand(orientation: Any, decode: Any, data: bytes, expected: int) -> None:
    assert expected == orientation(data).numpy()
    assert (20, 30) == tuple(sorted(decode(data).shape[:2]))


def test_the_recipe_can_ignore_it() -> None:
    data = with_segments(EXIF_8)
    upright = pixels.decode_file(tf.constant(data), recipe.complete(RECIPE))
    lying = pixels.decode_file(tf.constant(data), recipe.complete(RECIPE, {"orientation": "ignore"}))
    assert ([30, 20, 3], [20, 30, 3]) == (upright.shape, lying.shape)


KINDS = {
    "JPEG": saved(photo(37, 21), "JPEG"),
    "progressive JPEG": saved(photo(37, 21), "JPEG", progressive=True),
    "JPEG with EXIF": saved(photo(37, 21), "JPEG", exif=tiff("II", 6)),
    "PNG": saved(photo(37, 21), "PNG"),
    "GIF": saved(photo(37, 21), "GIF"),
    "BMP": saved(photo(37, 21), "BMP"),
    "lossy WebP": saved(photo(37, 21), "WEBP"),
    "lossless WebP": saved(photo(37, 21), "WEBP", lossless=True),
    "extended WebP": saved(photo(37, 21), "WEBP", exif=tiff("II", 1)),
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)
def test_the_size_of_every_format(picture_size: Any, data: bytes) -> None:
    assert (21, 37) == tuple(side.numpy() for side in picture_size(data))


@pytest.mark.parametrize("path", resources.example_photos(), ids=lambda path: path.name)
def test_the_size_of_real_photos(picture_size: Any, path: Path) -> None:
    with Image.open(path) as opened:
        assert (opened.height, opened.width) == tuple(side.numpy() for side in picture_size(path.read_bytes()))


def claiming(kind: str, side: int) -> bytes:
    """A small file whose header claims a square of `side` pixels."""
    if kind == "PNG":
        chunk = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        end = b"IDAT" + zlib.compress(bytes(1000))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (chunk, end)
        )
    data = bytearray(KINDS[kind])
    if kind == "JPEG":
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", side, side)
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", side, side)
    elif kind == "BMP":
        data[18:26] = struct.pack("<ii", side, -side)
    else:
        data[24:30] = (side - 1).to_bytes(3, "little") * 2
    return bytes(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "extended WebP"])
def test_a_header_that_claims_too_much_is_refused_before_decoding(kind: str) -> None:
    read = tf.function(lambda image: isolation.read_images(image, recipe.complete(RECIPE)))
    good = KINDS["PNG"]
    found, ok, error = read(tf.constant([good, claiming(kind, 60000), good]))
    assert [True, False, True] == ok.numpy().tolist()
    text = b"too large: its header says 60000 by 60000 pixels; allowed are 100000000 in all"
    assert [b"", text, b""] == error.numpy().tolist()
    np.testing.assert_array_equal(found[0], found[2])


def test_nothing_in_a_file_makes_reading_its_header_fail(picture_size: Any, orientation: Any) -> None:
    """Every format, 600 times with bytes changed or cut off."""
    chance = random.Random(1)
    files = [*KINDS.values(), *(data for data, _ in list(SEGMENTS.values())[:3])]
    for _ in range(600):
        data = bytearray(chance.choice(files)[: chance.randrange(1, 2000)])
        for _ in range(chance.randrange(8)):
            data[chance.randrange(min(len(data), 64))] = chance.randrange(256)
        assert min(side.numpy() for side in picture_size(bytes(data))) >= 0
        assert 1 <= orientation(bytes(data)).numpy() <= 8
