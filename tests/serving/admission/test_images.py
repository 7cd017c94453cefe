"""The pixels that image files claim: never fewer than the baked graph would decode."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable

import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.exporter.image import encodings
from savedmodel_bakery.exporter.image.header import read_header
from savedmodel_bakery.serving.admission.images import claim


def encoded(image_format: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (60, 40)).save(file, image_format, **options)
    return file.getvalue()


FILES = {image_format: encoded(image_format) for image_format in ("JPEG", "PNG", "GIF", "BMP", "WEBP")}
FILES["lossless WebP"] = encoded("WEBP", lossless=True)
FILES["extended WebP"] = encoded("WEBP", icc_profile=b"x" * 200)
FILES["progressive JPEG"] = encoded("JPEG", progressive=True)
HUGE_PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 10_000, 10_000, 8, 2, 0, 0, 0)
JPEG = FILES["JPEG"]


def segment(size: int, count: int = 1) -> bytes:
    return (b"\xff\xe2" + struct.pack(">H", size) + bytes(size - 2)) * count


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "file": bytes,
    "base64": base64.b64encode,
    "web-safe": base64.urlsafe_b64encode,
    "without padding": lambda file: base64.b64encode(file).rstrip(b"="),
    "lines": base64.encodebytes,
    "data URI": lambda file: b"data:image/x;base64," + base64.b64encode(file),
    "another case": lambda file: b"Data:image/x;base64," + base64.b64encode(file),
    "long data URI": lambda file: b"data:" + b"x" * 500 + b"," + base64.b64encode(file),
    "line break first": lambda file: b"\n" + base64.b64encode(file),
    "spaces first": lambda file: b" " * 9000 + base64.b64encode(file),
    "spaces between": lambda file: b" \t\0".join(base64.b64encode(file)[i : i + 1] for i in range(len(file))),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("file", FILES.values(), ids=FILES)
def test_files_in_every_form(file: bytes, form: Callable[[bytes], bytes]) -> None:
    assert 2400 == claim(form(file)).pixels


def test_what_is_drawn_on_a_canvas_needs_memory_for_it() -> None:
    """Animated WebP files need two canvases with transparency."""
    frames = [Image.new("RGB", (60, 40), colour) for colour in ("red", "blue")]
    frames[0].save(file := io.BytesIO(), "WEBP", save_all=True, append_images=frames[1:])
    gif = bytearray(FILES["GIF"])
    gif[gif.index(b"\x2c\0\0\0\0", 13) + 1] = 1  # the frame's left edge
    costs = [claim(each).bytes_per_pixel for each in (file.getvalue(), FILES["lossless WebP"], bytes(gif))]
    assert [13, 9, 9] == costs


def test_a_file_of_several_scans_needs_memory_for_its_coefficients() -> None:
    """As much as libjpeg takes for them, 2 bytes each, and for the decoded pixels."""

    def written(mode: str, **options: object) -> bytes:
        file = io.BytesIO()
        Image.new(mode, (64, 48)).save(file, "JPEG", **options)
        return file.getvalue()

    scan = written("RGB").index(b"\xff\xda")
    several_scans = bytearray(written("RGB"))
    several_scans[scan + 4] = 1
    for data, expected in (
        (written("RGB"), 6),
        (written("CMYK"), 6),
        (bytes(several_scans), 10),
        (written("L", progressive=True), 6),
        (written("RGB", progressive=True), 10),
        (written("CMYK", progressive=True), 12),
        (written("RGB", progressive=True)[: scan - 20], 10),
    ):
        assert (64 * 48, expected) == claim(data) == claim(base64.b64encode(data))


def test_only_the_header_is_read() -> None:
    assert (100_000_000, 6) == claim(HUGE_PNG)


def test_levels_of_16_bits_take_twice_as_much() -> None:
    assert (100_000_000, 12) == claim(HUGE_PNG[:24] + b"\x10" + HUGE_PNG[25:])


# Files that the graph decodes although others give up on them, or find another size.
ODD = {
    "JPEG with large segments": JPEG[:2] + segment(60_000, 5) + JPEG[2:],
    "JPEG with an empty segment": JPEG[:2] + b"\xff\xfe\x00\x00" + JPEG[2:],
    "JPEG with a segment shorter than its length": JPEG[:2] + b"\xff\xfe\x00\x01" + JPEG[2:],
    "JPEG with fill bytes": JPEG[:2] + b"\xff" * 300 + JPEG[2:],
    "JPEG with markers without contents": JPEG[:2] + b"\xff\x01\xff\xd0" + JPEG[2:],
    "GIF whose frame exceeds its canvas": FILES["GIF"][:6] + b"\1\0\1\0" + FILES["GIF"][10:],
    "GIF with comments": FILES["GIF"][: FILES["GIF"].index(b"\x2c\0\0")]
    + b"\x21\xfe" + (b"\xff" + b"x" * 255) * 2000 + b"\0" + FILES["GIF"][FILES["GIF"].index(b"\x2c\0\0") :],
    "BMP from top to bottom": FILES["BMP"][:22] + struct.pack("<i", -40) + FILES["BMP"][26:],
}  # fmt: skip


@pytest.mark.parametrize("form", [FORMS["file"], FORMS["base64"]], ids=["file", "base64"])
@pytest.mark.parametrize("file", ODD.values(), ids=ODD)
def test_unusual_files_claim_what_the_graph_decodes(file: bytes, form: Callable[[bytes], bytes]) -> None:
    value = form(file)
    header = read_header(encodings.decode(tf.constant(value)))
    assert 2400 == int(header.height * header.width)
    assert 2400 == claim(value).pixels


@pytest.mark.parametrize("file", [*FILES.values(), *ODD.values()], ids=[*FILES, *ODD])
def test_damaged_files_claim_at_least_what_the_graph_decodes(file: bytes) -> None:
    read = tf.function(lambda data: read_header(data)[:2], autograph=False)
    for place in range(min(len(file), 64)):
        for byte in (0x00, 0xFF, file[place] ^ 0x80):
            damaged = file[:place] + bytes([byte]) + file[place + 1 :]
            height, width = read(tf.constant(damaged))
            assert int(height) * int(width) <= claim(damaged).pixels, (place, byte)


def test_a_gif_with_too_many_blocks_claims_the_most() -> None:
    file = FILES["GIF"]
    start = file[: file.index(b"\x2c\0\0")]
    assert claim(start + b"\x21\xfe" + b"\1x" * 100_000).pixels > 10**9
    assert claim(start + b"\x21\xfe\0" * 100_000).pixels > 10**9


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"<svg width='9' height='9'/>", b"\xff\xd8\xff", b"\x89PNG\r\n", b"data:", b"/9j/====", b"RIFF" * 9],
)
def test_other_values_claim_nothing(value: bytes) -> None:
    assert 0 == claim(value).pixels


@pytest.mark.parametrize("value", ["größe " * 20_000, " " * 100_000, "a" * 100_000, "=" * 100_000])
def test_long_texts_claim_nothing(value: str) -> None:
    assert 0 == claim(value.encode()).pixels
