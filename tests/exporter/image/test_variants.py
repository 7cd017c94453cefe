"""What a decoder takes is not refused: files with parts that are rare, as cameras and old programs write them."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.exporter.image import header, pixels
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.serving.admission.images import claim

COUNT = 200
NOISE = np.random.default_rng(7).integers(0, 256, (21, 37, 3), np.uint8)


@pytest.fixture(scope="module")
def read(preprocessing_of: Callable[..., Preprocessing]) -> Callable[[bytes], tuple[int, np.ndarray]]:
    """Return a function that returns the pixels that a header states, and those of the decoded image."""
    preprocessing = preprocessing_of()

    def run(data: Any) -> Any:
        found = header.read_header(data)
        return found.height * found.width, pixels.decode_file(data, found, preprocessing).pixels

    traced = tf.function(run, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)

    def read(data: bytes) -> tuple[int, np.ndarray]:
        count, decoded = traced(data)
        assert claim(data).pixels >= decoded.shape[0] * decoded.shape[1]
        return int(count), decoded.numpy()

    return read


def encode(file_format: str, **options: Any) -> bytes:
    data = io.BytesIO()
    Image.fromarray(NOISE).save(data, file_format, **options)
    return data.getvalue()


def by_pillow(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as opened:
        return np.asarray(opened.convert("RGB"))


JPEG_FILES = (encode("JPEG"), encode("JPEG", progressive=True), encode("JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0"))


def segment(marker: int, contents: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(contents) + 2) + contents


def odd_jpeg(rng: random.Random) -> bytes:
    """A JPEG file with stray bytes, fill bytes, and markers and segments of any kind between those of its headers."""
    file = rng.choice(JPEG_FILES)
    start, pieces = 2, [file[:2]]
    while file[start + 1] != 0xDA:
        end = start + 2 + int.from_bytes(file[start + 2 : start + 4], "big")
        pieces.append(file[start:end])
        start = end
        for _ in range(rng.choice((0, 0, 1, 2))):
            pieces.append(
                rng.choice(
                    (
                        rng.randbytes(rng.randrange(1, 9)),
                        b"\xff\0" * rng.randrange(1, 4),
                        b"\xff" * rng.choice((1, 2, 3000)),
                        bytes(rng.choice((1, 100, 70_000))),
                        segment(0xFE, rng.randbytes(5)),
                        segment(
                            rng.choice((0xE1, 0xED, 0xDD, 0xC4, 0xDB, 0xF0, 0x02)), rng.randbytes(rng.randrange(4))
                        ),
                        bytes([0xFF, 0xD0 + rng.randrange(8)]) + b"\xff\x01",
                        struct.pack(">BBH", 0xFF, 0xFE, rng.randrange(3)),
                    )
                )
            )
    return b"".join(pieces) + file[start:]


def test_odd_jpeg_files_that_libjpeg_decodes_are_decoded(read: Callable[[bytes], tuple[int, np.ndarray]]) -> None:
    rng, decoded = random.Random(1), 0
    for number in range(COUNT):
        data = odd_jpeg(rng)
        try:
            expected = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
        except tf.errors.InvalidArgumentError:
            expected = np.zeros((0, 0, 3), np.uint8)
        count, result = read(data)
        assert count == result.shape[0] * result.shape[1] or not result.size, number
        np.testing.assert_array_equal(expected, result, err_msg=str(number))
        decoded += bool(result.size)
    assert COUNT > decoded > COUNT / 2


GIF = encode("GIF")


def sub_blocks(rng: random.Random) -> bytes:
    return (
        b"".join(bytes([size]) + rng.randbytes(size) for size in rng.choices(range(1, 40), k=rng.randrange(4))) + b"\0"
    )


def odd_gif(rng: random.Random) -> bytes:
    """A GIF file with extensions of any kind before its frame, some empty, and with anything after it."""
    extensions = (
        lambda: b"!\xfe\0",
        lambda: b"!\xf9\0",
        lambda: b"!\xf9\x02\0\0\0",
        lambda: b"!\xf9\x04\0\0\0\0\3abc\0",
        lambda: b"!" + rng.choice((b"\x01", b"\xfe", b"\xff", b"w")) + sub_blocks(rng),
        lambda: b"!\xff\x0bXMP DataXMP" + bytes(range(32, 127)) + b"\1" + bytes(range(255, -1, -1)) + b"\0",
    )
    frame = GIF.index(b",\0\0\0\0")
    before = GIF[:frame] + b"".join(rng.choice(extensions)() for _ in range(rng.randrange(4)))
    return before + GIF[frame:-1] + rng.choice((b";", b"", b";xx", b"\0;", b"!\xfe\0;"))


def test_odd_gif_files_are_decoded(read: Callable[[bytes], tuple[int, np.ndarray]]) -> None:
    rng, expected = random.Random(1), by_pillow(GIF)
    for number in range(COUNT):
        np.testing.assert_array_equal(expected, read(odd_gif(rng))[1], err_msg=str(number))


PALETTE = np.random.default_rng(8).integers(0, 256, (256, 4), np.uint8)
V5 = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000) + bytes(68)  # masks, then what this module leaves 0


def bmp(
    bits: int = 24, info_bytes: int = 40, *, compression: int = 0, further: bytes = b"", up: int = 1, after: bytes = b""
) -> bytes:
    """A BMP file whose header has `info_bytes`; 12 for that of OS/2. What it states of its sizes is 0 where it may."""
    entry_bytes = 3 if info_bytes == 12 else 4
    stored = {8: NOISE[..., :1], 24: NOISE[..., ::-1], 32: np.insert(NOISE[..., ::-1], 3, 9, axis=2)}[bits]
    rows = [row.tobytes() for row in stored[::-up]]
    info = struct.pack("<IHHHH", 12, 37, 21, 1, bits)
    if info_bytes > 12:
        info = struct.pack("<IiiHHI5I", info_bytes, 37, 21 * up, 1, bits, compression, 0, 0, 0, 0, 0) + further
        info = info.ljust(info_bytes, b"\0")
    info += PALETTE[:, :entry_bytes].tobytes() if bits == 8 else b""
    pixels = b"".join(row + bytes(-len(row) % 4) for row in rows)
    return b"BM" + struct.pack("<III", 0, 0, 14 + len(info)) + info + pixels + after


BMP_FILES = {
    f"{bits} bits, header of {info_bytes}, {way}": bmp(bits, info_bytes, up=up, after=after)
    for bits in (8, 24, 32)
    for info_bytes in (12, 40, 52, 56, 64, 108, 124)
    for way, up, after in (("bottom up", 1, b""), ("top down", -1, b""), ("bytes after the pixels", 1, bytes(999)))
    if not (up < 0 and info_bytes == 12) and not (bits == 32 and info_bytes == 12)
}
BMP_FILES["masks after the header"] = bmp(32, 40, compression=3, further=V5[:12])
BMP_FILES["masks in the header"] = bmp(32, 124, compression=3, further=V5)


def test_bmp_files_of_every_header_are_decoded(read: Callable[[bytes], tuple[int, np.ndarray]]) -> None:
    for name, data in BMP_FILES.items():
        count, result = read(data)
        assert 21 * 37 == count, name
        np.testing.assert_array_equal(by_pillow(data), result, err_msg=name)
