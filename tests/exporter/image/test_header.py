"""Sizes and orientations are read from headers as Pillow reads them, and nothing that is in a file makes that fail."""

from __future__ import annotations

import functools
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

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.image import header, pixels
from savedmodel_bakery.exporter.image.per_image import read_images
from savedmodel_bakery.exporter.recipe import Recipe

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
    return tf.function(lambda data: header.read_header(data).orientation, input_signature=[TEXT])


@pytest.fixture(scope="module")
def decode() -> Any:
    chosen = Recipe.from_values(RECIPE).preprocessing
    return tf.function(
        lambda data: pixels.decode_file(data, header.read_header(data), chosen).pixels, input_signature=[TEXT]
    )


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


OTHERS = {
    "PNG": lambda exif: saved(photo(), "PNG", exif=exif),
    "PNG with other chunks": lambda exif: saved(photo(), "PNG", exif=exif, icc_profile=bytes(3000), dpi=(72, 72)),
    "PNG with alpha": lambda exif: saved(photo().convert("RGBA"), "PNG", exif=exif),
    "WebP": lambda exif: saved(photo(), "WEBP", lossless=True, exif=exif),
    "WebP, lossy": lambda exif: saved(photo(), "WEBP", exif=exif),
    "WebP without prefix": lambda exif: saved(photo(), "WEBP", lossless=True, exif=exif[6:]),
    "WebP with other chunks": lambda exif: saved(photo(), "WEBP", lossless=True, exif=exif, icc_profile=bytes(3001)),
    "WebP, animated": lambda exif: saved(
        photo(), "WEBP", lossless=True, exif=exif, save_all=True, append_images=[photo().rotate(180)]
    ),
}


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("write", OTHERS.values(), ids=OTHERS)
def test_a_picture_of_another_format_is_turned_as_pillow_turns_it(
    decode: Any, write: Any, order: str, value: int
) -> None:
    data = write(tiff(order, value))
    with Image.open(io.BytesIO(data)) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    np.testing.assert_array_equal(expected, decode(data).numpy())


SHAPES = {
    "odd margins": (30, 20),
    "even margins": (31, 20),
    "upright": (20, 33),
    "square": (21, 21),
    "one row": (40, 1),
}


@functools.cache
def reader(crop: str) -> Any:
    chosen = Recipe.from_values(RECIPE | {"crop": crop}).preprocessing
    return tf.function(lambda image: read_images(image, chosen), input_signature=[tf.TensorSpec([None], tf.string)])


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("crop", ["none", "7/8", "letterbox"])
def test_a_turned_photo_is_cropped_and_resized_as_the_upright_one_is(value: int, crop: str) -> None:
    """Bit for bit what Pillow's upright picture gives, saved without loss."""
    turned, upright = [], []
    for shape in SHAPES.values():
        lying = with_orientation(saved(photo(*shape), "JPEG", quality=95), value)
        with Image.open(io.BytesIO(lying)) as opened:
            upright.append(saved(ImageOps.exif_transpose(opened), "PNG"))
        turned.append(lying)
    expected, _, _ = reader(crop)(tf.constant(upright))
    found, ok, _ = reader(crop)(tf.constant(turned))
    assert all(ok.numpy())
    np.testing.assert_array_equal(expected, found)


def with_orientation(jpeg: bytes, value: int) -> bytes:
    return jpeg[:2] + segment(0xE1, tiff("MM", value)) + jpeg[2:]


def test_the_recipe_can_ignore_it() -> None:
    data = tf.constant(with_segments(EXIF_8))
    claims = header.read_header(data)
    upright = pixels.decode_file(data, claims, Recipe.from_values(RECIPE).preprocessing).pixels
    lying = pixels.decode_file(
        data, claims, Recipe.from_values(RECIPE | {"orientation": "ignore"}).preprocessing
    ).pixels
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
    if "JPEG" in kind:
        at = data.index(b"\xff\xc2" if "progressive" in kind else b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", side, side)
    elif kind == "GIF":
        data[6:10] = struct.pack("<HH", side, side)
    elif kind == "BMP":
        data[18:26] = struct.pack("<ii", side, -side)
    elif kind == "lossless WebP":
        data[21:25] = (side - 1 | side - 1 << 14).to_bytes(4, "little")
    else:
        data[24:30] = (side - 1).to_bytes(3, "little") * 2
    return bytes(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "progressive JPEG", "GIF", "BMP", "lossless WebP", "extended WebP"])
def test_a_header_that_claims_too_much_is_refused_before_decoding(kind: str) -> None:
    side = 2**14 if kind == "lossless WebP" else 60000  # what its 14 bits can claim
    good = KINDS["PNG"]
    found, ok, error = reader("none")(tf.constant([good, claiming(kind, side), good]))
    assert [True, False, True] == ok.numpy().tolist()
    text = f"too large: its header states {side} by {side} pixels; the maximum is 100000000".encode()
    assert [b"", text, b""] == error.numpy().tolist()
    np.testing.assert_array_equal(found[0], found[2])


LARGE, SMALL = claiming("JPEG", 60000), KINDS["JPEG"]
FRAME = SMALL[SMALL.index(b"\xff\xc0") :][:19]
HIDDEN = {
    "behind bytes that are no marker": LARGE[:2] + b"hidden" + LARGE[2:],
    "behind a stuffed ff": LARGE[:2] + b"\xff\x00" + LARGE[2:],
    "behind a marker without contents": LARGE[:2] + b"\xff\x01" + LARGE[2:],
    "behind a restart marker": LARGE[:2] + b"\xff\xd3" + LARGE[2:],
    "behind very many segments": LARGE[:2] + segment(0xFE, b"") * 5000 + LARGE[2:],
    "behind very many ff": LARGE[:2] + b"\xff" * 5000 + LARGE[2:],
    "behind what a marker without contents seems to skip": LARGE[:2]
    + b"\xff\x01"
    + LARGE[2:].ljust(0xFFC0 + 1, b"\0")
    + FRAME,
    "in a WebP file without chunks": b"RIFF\x20\0\0\0WEBP" + claiming("lossless WebP", 2**14)[20:],
    "in a GIF file's frame": KINDS["GIF"].replace(b",\0\0\0\0\x25\0\x15\0", b",\0\0\0\0\xff\xff\xff\xff"),
    "in a GIF file's frame far off": KINDS["GIF"].replace(b",\0\0\0\0", b",\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("data", HIDDEN.values(), ids=HIDDEN)
def test_a_size_that_a_decoder_would_find_is_not_overlooked(picture_size: Any, data: bytes) -> None:
    """The decoders skip what they don't understand; a size that is found elsewhere must count, or none be found."""
    height, width = (int(side) for side in picture_size(data))
    assert 0 == height * width or height * width >= 2**28


def test_further_frames_of_a_gif_file_are_not_even_looked_at(picture_size: Any) -> None:
    """Each would be held in memory."""
    large = claiming_frame(60000)
    data = KINDS["GIF"][:-1] + large * 100 + b";"
    assert (21, 37) == tuple(side.numpy() for side in picture_size(data))
    found, ok, _ = reader("none")(tf.constant([data, KINDS["GIF"]]))
    assert [True, True] == ok.numpy().tolist()
    np.testing.assert_array_equal(found[1], found[0])


def claiming_frame(side: int) -> bytes:
    """A GIF frame that claims a square of `side` pixels, and has two."""
    return b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02\x02\x4c\x01\x00"


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


def test_a_png_whose_header_does_not_come_first_has_no_size(picture_size: Any, rocket: Image.Image) -> None:
    """As libpng reads over the chunk before it, and a size that is not the picture's would get round the limit."""
    written = io.BytesIO()
    rocket.save(written, "png")
    data = written.getvalue()
    assert [427, 640] == [int(side) for side in picture_size(data)]
    claim = b"abCd" + struct.pack(">IIBBBBB", 10, 10, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(claim) - 4) + claim + struct.pack(">I", zlib.crc32(claim))
    height, width = picture_size(data[:8] + chunk + data[8:])
    assert 0 == height * width
