"""Encodings of an image file: raw bytes, base64 and data URIs give the same pixels."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.exporter.image import encodings

Encoding = Callable[[bytes], bytes]


def wrapped(text: bytes, line_break: str) -> bytes:
    """Lines of 76 characters, as in MIME (RFC 2045, 6.8)."""
    return line_break.join(textwrap.wrap(text.decode(), 76)).encode()


def standard(data: bytes) -> bytes:
    return base64.b64encode(data)


def web_safe(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data)


ENCODINGS: dict[str, Encoding] = {
    "standard": standard,
    "standard, no padding": lambda data: standard(data).rstrip(b"="),
    "standard, LF": lambda data: wrapped(standard(data), "\n") + b"\n",
    "standard, CRLF": lambda data: wrapped(standard(data), "\r\n") + b"\r\n",
    "standard, whitespace around": lambda data: b" \t\r\n" + standard(data) + b"\n \t",
    "web-safe": web_safe,
    "web-safe, no padding": lambda data: web_safe(data).rstrip(b"="),
    "web-safe, LF": lambda data: wrapped(web_safe(data), "\n"),
    "web-safe, CRLF": lambda data: wrapped(web_safe(data), "\r\n"),
    "web-safe, whitespace around": lambda data: b"\n" + web_safe(data) + b"\n",
    "both alphabets at once": lambda data: standard(data).replace(b"+", b"-"),
    "data URI": lambda data: b"data:image/png;base64," + standard(data),
    "data URI, web-safe": lambda data: b"data:image/jpeg;base64," + web_safe(data),
    "data URI, no media type": lambda data: b"data:;base64," + standard(data),
    "data URI, no padding": lambda data: b"data:image/png;base64," + standard(data).rstrip(b"="),
    "data URI, line breaks": lambda data: b"data:image/png;base64,\r\n" + wrapped(standard(data), "\r\n") + b"\r\n",
}


def padded(data: bytes, padding: int) -> bytes:
    """Append bytes to the image, which decoders ignore, so that its base64 has `padding` padding characters."""
    return data + bytes(-(len(data) + padding) % 3)


@pytest.mark.parametrize("name", ["rocket.jpg", "coffee.png"], ids=["jpg", "png"])
@pytest.mark.parametrize("encode_bytes", ENCODINGS.values(), ids=ENCODINGS)
def test_every_encoding_gives_the_pixels_of_the_raw_bytes(
    read: Callable[..., Any], photos: dict[str, bytes], encode_bytes: Encoding, name: str
) -> None:
    """Bit for bit, with every length of padding."""
    content = [padded(photos[name], padding) for padding in (0, 1, 2)]
    expected = read(content)
    encoded = read([encode_bytes(data) for data in content])
    assert [True] * 3 == expected.ok
    assert [True] * 3 == encoded.ok
    assert [""] * 3 == encoded.error
    np.testing.assert_array_equal(expected.pixels, encoded.pixels)


def test_base64_of_the_photos_contains_the_symbols_in_which_the_alphabets_differ(photos: dict[str, bytes]) -> None:
    """Otherwise the encodings above would not test the alphabets."""
    for name in ("rocket.jpg", "coffee.png"):
        assert {b"+", b"/"} <= {bytes([symbol]) for symbol in standard(photos[name])}
        assert [0, 1, 2] == [standard(padded(photos[name], padding)).count(b"=") for padding in (0, 1, 2)]


MAGIC_NUMBERS = {
    "JPEG": (b"\xff\xd8\xff\xe0", True),
    "PNG": (b"\x89PNG\r\n\x1a\n", True),
    "GIF87a": (b"GIF87a", True),
    "GIF89a": (b"GIF89a", True),
    "BMP": (b"BM", True),
    "WebP": (b"RIFF\x10\x00\x00\x00WEBPVP8 ", True),
    "other RIFF": (b"RIFF\x10\x00\x00\x00WAVEfmt ", False),
    "truncated RIFF": (b"RIFF", False),
    "truncated PNG": (b"\x89PNG", False),
    "GIF of an unknown version": (b"GIF88a", False),
    "empty": (b"", False),
    "base64 of a JPEG": (b"/9j/4AAQ", False),
}


@pytest.mark.parametrize(("data", "expected"), MAGIC_NUMBERS.values(), ids=MAGIC_NUMBERS)
def test_image_files_are_recognised_by_their_first_bytes(data: bytes, expected: bool) -> None:
    assert expected == bool(encodings.detect_format(tf.constant(data)) > encodings.UNKNOWN)


TEXTS = {
    "one byte": (b"_w==", True),
    "one byte, no padding": (b"_w", True),
    "all symbols": (b"AZaz09+/-_==", True),
    "whitespace between": (b" A\tA\r\nA A ", True),
    "data URI": (b"data:image/png;base64,AAAA", True),
    "one symbol": (b"A", False),
    "five symbols": (b"AAAAA", False),
    "padding alone": (b"==", False),
    "three padding characters": (b"A===", False),
    "padding in the middle": (b"A=AA", False),
    "other characters": (b"AA.A", False),
    "beyond ASCII": ("AAÄA".encode(), False),
    "empty": (b"", False),
    "whitespace alone": (b" \n", False),
    "data URI without comma": (b"data:AAAA", False),
    "data URI without data": (b"data:image/png;base64,", False),
    "data URI with two commas": (b"data:,AAAA,AAAA", False),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_valid_base64_is_decoded_and_other_text_is_not(text: bytes, expected: bool) -> None:
    assert expected == (b"" != encodings.decode(tf.constant(text)).numpy())


@pytest.mark.parametrize("length", [*range(8), 255, 256, 16383, 16384, 2**21], ids=lambda length: f"{length} bytes")
def test_bytes_of_any_length_are_decoded(length: int) -> None:
    """The lengths include those around which the length field of a protobuf message grows by a byte.

    The longest text is converted in several blocks.
    """
    data = bytes(np.random.default_rng(length).integers(0, 256, length, np.uint8))
    for text in (standard(data), base64.encodebytes(data)):
        assert data == encodings.decode_base64(tf.constant(text)).numpy()
