"""Sizes and orientations are read from headers as Pillow reads them, and no file content makes that fail."""

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
    return tf.function(lambda data: header.read_header(data)[:2], input_signature=[TEXT], autograph=False)


@pytest.fixture(scope="module")
def orientation() -> Any:
    return tf.function(lambda data: header.read_header(data).orientation, input_signature=[TEXT], autograph=False)


@pytest.fixture(scope="module")
def decode() -> Any:
    preprocessing = Recipe.from_values(RECIPE).preprocessing
    return tf.function(
        lambda data: pixels.decode_file(data, header.read_header(data), preprocessing).pixels,
        input_signature=[TEXT],
        autograph=False,
    )


def photo(width: int = 30, height: int = 20) -> Image.Image:
    with Image.open(resources.folder("examples") / "rocket.jpg") as opened:
        return opened.convert("RGB").resize((width, height))


def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, file_format, **options)
    return data.getvalue()


def tiff(order: str, value: int, *, kind: int = 3, before: int = 0) -> bytes:
    """An EXIF block: `before` other tags, then Orientation with field type `kind` (3 SHORT, 4 LONG)."""
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
    """A JPEG file with segments inserted after its first marker."""
    plain = encode(photo(), "JPEG", quality=95)
    return plain[:2] + b"".join(segments) + plain[2:]


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("value", range(1, 9))
def test_a_photo_is_turned_upright_as_by_pillow(decode: Any, orientation: Any, order: str, value: int) -> None:
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
    "an invalid byte order": (with_segments(segment(0xE1, tiff("II", 6).replace(b"II", b"IX"))), 1),
    "a directory beyond the end of the file": (with_segments(segment(0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xf0")), 1),
    "an empty block": (with_segments(segment(0xE1, b"Exif\0\0")), 1),
    "a text instead of an integer": (with_segments(segment(0xE1, tiff("II", 6, kind=2))), 1),
    "none": (with_segments(), 1),
}


@pytest.mark.parametrize(("data", "expected"), SEGMENTS.values(), ids=SEGMENTS)
def test_orientation_is_found_in_any_valid_position(orientation: Any, decode: Any, data: bytes, expected: int) -> None:
    assert expected == orientation(data).numpy()
    assert (20, 30) == tuple(sorted(decode(data).shape[:2]))


OTHER_FORMATS = {
    "PNG": lambda exif: encode(photo(), "PNG", exif=exif),
    "PNG with other chunks": lambda exif: encode(photo(), "PNG", exif=exif, icc_profile=bytes(3000), dpi=(72, 72)),
    "PNG with alpha": lambda exif: encode(photo().convert("RGBA"), "PNG", exif=exif),
    "WebP": lambda exif: encode(photo(), "WEBP", lossless=True, exif=exif),
    "WebP, lossy": lambda exif: encode(photo(), "WEBP", exif=exif),
    "WebP without prefix": lambda exif: encode(photo(), "WEBP", lossless=True, exif=exif[6:]),
    "WebP with other chunks": lambda exif: encode(photo(), "WEBP", lossless=True, exif=exif, icc_profile=bytes(3001)),
    "WebP, animated": lambda exif: encode(
        photo(), "WEBP", lossless=True, exif=exif, save_all=True, append_images=[photo().rotate(180)]
    ),
}


@pytest.mark.parametrize("order", ["II", "MM"])
@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("write", OTHER_FORMATS.values(), ids=OTHER_FORMATS)
def test_an_image_of_another_format_is_turned_upright_as_by_pillow(
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
    preprocessing = Recipe.from_values(RECIPE | {"crop": crop}).preprocessing
    return tf.function(
        lambda image: read_images(image, tf.range(tf.size(image)), tf.size(image), preprocessing),
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("crop", ["none", "7/8", "letterbox"])
def test_a_turned_photo_is_cropped_and_resized_like_the_upright_one(value: int, crop: str) -> None:
    """Bit for bit like Pillow's upright image in a lossless file."""
    turned, upright = [], []
    for shape in SHAPES.values():
        stored = with_orientation(encode(photo(*shape), "JPEG", quality=95), value)
        with Image.open(io.BytesIO(stored)) as opened:
            upright.append(encode(ImageOps.exif_transpose(opened), "PNG"))
        turned.append(stored)
    expected, sizes, _, _ = reader(crop)(tf.constant(upright))
    result, upright_sizes, errors, _ = reader(crop)(tf.constant(turned))
    np.testing.assert_array_equal(sizes, upright_sizes)
    assert [b""] * len(turned) == errors.numpy().tolist()
    np.testing.assert_array_equal(expected, result)


def with_orientation(jpeg: bytes, value: int) -> bytes:
    return jpeg[:2] + segment(0xE1, tiff("MM", value)) + jpeg[2:]


def test_the_recipe_can_ignore_the_orientation() -> None:
    data = tf.constant(with_segments(EXIF_8))
    data_header = header.read_header(data)
    upright = pixels.decode_file(data, data_header, Recipe.from_values(RECIPE).preprocessing).pixels
    stored = pixels.decode_file(
        data, data_header, Recipe.from_values(RECIPE | {"orientation": "ignore"}).preprocessing
    ).pixels
    assert ([30, 20, 3], [20, 30, 3]) == (upright.shape, stored.shape)


FILES = {
    "JPEG": encode(photo(37, 21), "JPEG"),
    "progressive JPEG": encode(photo(37, 21), "JPEG", progressive=True),
    "JPEG with EXIF": encode(photo(37, 21), "JPEG", exif=tiff("II", 6)),
    "PNG": encode(photo(37, 21), "PNG"),
    "GIF": encode(photo(37, 21), "GIF"),
    "BMP": encode(photo(37, 21), "BMP"),
    "lossy WebP": encode(photo(37, 21), "WEBP"),
    "lossless WebP": encode(photo(37, 21), "WEBP", lossless=True),
    "extended WebP": encode(photo(37, 21), "WEBP", exif=tiff("II", 1)),
}


@pytest.mark.parametrize("data", FILES.values(), ids=FILES)
def test_the_size_of_every_format(picture_size: Any, data: bytes) -> None:
    assert (21, 37) == tuple(side.numpy() for side in picture_size(data))


@pytest.mark.parametrize("path", resources.example_photos(), ids=lambda path: path.name)
def test_the_size_of_real_photos(picture_size: Any, path: Path) -> None:
    with Image.open(path) as opened:
        assert (opened.height, opened.width) == tuple(side.numpy() for side in picture_size(path.read_bytes()))


def test_a_lossy_webp_file_may_be_as_wide_and_high_as_its_14_bits(picture_size: Any) -> None:
    data = bytearray(FILES["lossy WebP"])
    for width, height in ((2**14 - 1, 9000), (9000, 2**14 - 1)):
        data[26:30] = struct.pack("<HH", width, height)
        assert (height, width) == tuple(side.numpy() for side in picture_size(bytes(data)))


def with_stated_size(file_format: str, side: int) -> bytes:
    """A small file whose header states a square of `side` pixels."""
    if file_format == "PNG":
        chunk = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        end = b"IDAT" + zlib.compress(bytes(1000))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (chunk, end)
        )
    data = bytearray(FILES[file_format])
    if "JPEG" in file_format:
        size = data.index(b"\xff\xc2" if "progressive" in file_format else b"\xff\xc0") + 5
        data[size : size + 4] = struct.pack(">HH", side, side)
    elif file_format == "GIF":
        data[6:10] = struct.pack("<HH", side, side)
    elif file_format == "BMP":
        data[18:26] = struct.pack("<ii", side, -side)
    elif file_format == "lossless WebP":
        data[21:25] = (side - 1 | side - 1 << 14).to_bytes(4, "little")
    else:
        data[24:30] = (side - 1).to_bytes(3, "little") * 2
    return bytes(data)


@pytest.mark.parametrize(
    "file_format", ["PNG", "JPEG", "progressive JPEG", "GIF", "BMP", "lossless WebP", "extended WebP"]
)
def test_an_image_with_an_oversized_header_is_rejected_before_decoding(file_format: str) -> None:
    side = 2**14 if file_format == "lossless WebP" else 60000  # the maximum of its 14 bits
    good = FILES["PNG"]
    result, _, errors, _ = reader("none")(tf.constant([good, with_stated_size(file_format, side), good]))
    message = f"too large: its header states {side} by {side} pixels; the maximum is 100000000".encode()
    assert [b"", message, b""] == errors.numpy().tolist()
    np.testing.assert_array_equal(result[0], result[1])


LARGE, SMALL = with_stated_size("JPEG", 60000), FILES["JPEG"]
FRAME = SMALL[SMALL.index(b"\xff\xc0") :][:19]
HIDDEN_SIZES = {
    "after bytes that are no marker": LARGE[:2] + b"hidden" + LARGE[2:],
    "after a stuffed ff": LARGE[:2] + b"\xff\x00" + LARGE[2:],
    "after a marker without contents": LARGE[:2] + b"\xff\x01" + LARGE[2:],
    "after the first restart marker": LARGE[:2] + b"\xff\xd0" + LARGE[2:],
    "after the last restart marker": LARGE[:2] + b"\xff\xd7" + LARGE[2:],
    "after very many segments": LARGE[:2] + segment(0xFE, b"") * 5000 + LARGE[2:],
    "after very many ff": LARGE[:2] + b"\xff" * 5000 + LARGE[2:],
    "after bytes that a marker without contents seems to skip": LARGE[:2]
    + b"\xff\x01"
    + LARGE[2:].ljust(0xFFC0 + 1, b"\0")
    + FRAME,
    "in a WebP file without chunks": b"RIFF\x20\0\0\0WEBP" + with_stated_size("lossless WebP", 2**14)[20:],
    "in a GIF file's frame": FILES["GIF"].replace(b",\0\0\0\0\x25\0\x15\0", b",\0\0\0\0\xff\xff\xff\xff"),
    "in a GIF file's frame at a large offset": FILES["GIF"].replace(b",\0\0\0\0", b",\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("data", HIDDEN_SIZES.values(), ids=HIDDEN_SIZES)
def test_a_size_that_a_decoder_would_find_is_not_missed(picture_size: Any, data: bytes) -> None:
    """Decoders skip what they don't understand, so the header's size must be the hidden one or 0."""
    height, width = (int(side) for side in picture_size(data))
    assert 0 == height * width or height * width >= 2**28


def test_further_frames_of_a_gif_file_are_ignored(picture_size: Any) -> None:
    """The decoder would keep each of them in memory."""
    large = oversized_frame(60000)
    data = FILES["GIF"][:-1] + large * 100 + b";"
    assert (21, 37) == tuple(side.numpy() for side in picture_size(data))
    result, _, errors, _ = reader("none")(tf.constant([data, FILES["GIF"]]))
    assert [b"", b""] == errors.numpy().tolist()
    np.testing.assert_array_equal(result[1], result[0])


def oversized_frame(side: int) -> bytes:
    """A GIF frame whose descriptor states a square of `side` pixels, with two pixels of data."""
    return b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02\x02\x4c\x01\x00"


def test_reading_a_header_never_fails(picture_size: Any, orientation: Any) -> None:
    """600 files of all formats, truncated and with bytes changed."""
    rng = random.Random(1)
    files = [*FILES.values(), *(data for data, _ in list(SEGMENTS.values())[:3])]
    for _ in range(600):
        data = bytearray(rng.choice(files)[: rng.randrange(1, 2000)])
        for _ in range(rng.randrange(8)):
            data[rng.randrange(min(len(data), 64))] = rng.randrange(256)
        assert min(side.numpy() for side in picture_size(bytes(data))) >= 0
        assert 1 <= orientation(bytes(data)).numpy() <= 8


def test_a_png_file_whose_header_is_not_first_has_size_0(picture_size: Any, rocket: Image.Image) -> None:
    """Libpng skips the chunk before it, so that a forged size there would bypass the limit."""
    written = io.BytesIO()
    rocket.save(written, "png")
    data = written.getvalue()
    assert [427, 640] == [int(side) for side in picture_size(data)]
    forged = b"abCd" + struct.pack(">IIBBBBB", 10, 10, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(forged) - 4) + forged + struct.pack(">I", zlib.crc32(forged))
    height, width = picture_size(data[:8] + chunk + data[8:])
    assert 0 == height * width


def test_a_file_that_takes_a_decoder_long_whatever_its_size_has_size_0(picture_size: Any) -> None:
    """Each scan takes as long as the pixels, each compressed text of a PNG file up to 8 MB."""
    progressive = encode(photo(), "JPEG", progressive=True)
    last_scan = progressive[progressive.rindex(b"\xff\xda") : -2]
    count = progressive.count(b"\xff\xda")

    def with_scans(scans: int) -> bytes:
        return progressive[:-2] + last_scan * (scans - count) + progressive[-2:]

    png = encode(photo(), "PNG")
    text = b"zTXtkey\0\0" + zlib.compress(bytes(1000))
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    end = len(png) - 12
    for data, is_read in (
        (with_scans(64), True),
        (with_scans(65), False),
        (with_scans(1000), False),
        (with_segments(segment(0xE1, with_scans(400))), True),  # of a thumbnail
        (progressive * 70, True),  # what is after the end of an image is not decoded
        (png[:33] + chunk * 64 + png[33:], True),
        (png[:33] + chunk * 65 + png[33:], False),
        (png[:end] + chunk * 100 + png[end:], False),
    ):
        assert (600 if is_read else 0) == int(np.prod([side.numpy() for side in picture_size(data)]))
