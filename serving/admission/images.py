"""The pixels that images claim in their headers: decoding a file of 12 kB may take 400 MB.

By the rules of the graphs that the bakery makes (exporter/image: header.py, gif.py, webp.py and encodings.py), so that
what they decode never has more pixels than it claims here. Libraries that read sizes have other rules: imagesize does
not see a GIF's first frame that exceeds the canvas, and gives up on JPEG segments that libjpeg skips.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable

BYTES_PER_PIXEL = 6
"""Memory for a pixel while its image is decoded and resized: 4 to 6 bytes were measured for three and four channels."""

_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_INVISIBLE = bytes(range(ord(" ") + 1))  # the graph drops these from base64
_FIRST_SYMBOLS = 64  # of base64; enough for all sizes except some JPEG and GIF files'
_GROWTH = 32

# JPEG, ITU-T T.81, table B.1
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
_SCAN = 0xDA
_NO_CONTENTS = frozenset({0x01, *range(0xD0, 0xD8)})
_MAX_SEGMENTS = 1024
# GIF89a, sections 15 to 27
_EXTENSION, _IMAGE = 0x21, 0x2C
_MAX_SUB_BLOCKS = 2**16
_LARGEST_GIF_PIXELS = (2 * 65535) ** 2
_OS2_HEADER_BYTES = 12  # of BMP


def claimed_pixels(value: bytes) -> int:
    """Return how many pixels an image file, or its base64, claims to have; 0 if it is none."""
    if value.startswith(_STARTS):
        return _read_pixels(value) or 0
    start = value.find(b",") + 1 if value[:5].lower() == b"data:" else 0
    size = _FIRST_SYMBOLS
    while True:
        symbols = value[start : start + size].translate(_TO_STANDARD, _INVISIBLE)
        try:
            head = binascii.a2b_base64(symbols[: len(symbols) // 4 * 4])
        except binascii.Error:
            return 0
        if len(head) >= _LONGEST_START and not head.startswith(_STARTS):
            return 0
        pixels = _read_pixels(head)
        if pixels is not None or start + size >= len(value):
            return pixels or 0
        size *= _GROWTH


def _read_pixels(data: bytes) -> int | None:
    """Return the pixels of an image file; None if `data` ends before its size."""
    for start, read in _READERS.items():
        if data.startswith(start):
            try:
                return read(data)
            except (IndexError, struct.error):
                return None
    return None


def _jpeg(data: bytes) -> int:
    offset = 2
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, offset)
        if not found:
            raise IndexError("the file ends before its size")
        offset = found.start()
        marker = data[offset + 1]
        if marker == _SCAN:
            return 0
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, offset + 5)
            return int(height * width)
        if marker in _NO_CONTENTS:
            offset += 2
        else:
            (length,) = struct.unpack_from(">H", data, offset + 2)
            offset += 2 + max(length, 2)
    return 0


def _png(data: bytes) -> int:
    width, height = struct.unpack_from(">II", data, 16)
    return int(width * height)


def _gif(data: bytes) -> int:
    width, height = struct.unpack_from("<HH", data, 6)
    offset = 13 + (3 * 2 ** (data[10] % 8 + 1) if data[10] >= 0x80 else 0)
    sub_blocks = 0
    while data[offset] == _EXTENSION:
        offset += 2
        is_last = False
        while not is_last:  # the last sub-block of an extension is empty
            is_last = data[offset] == 0
            offset += 1 + data[offset]
            sub_blocks += 1
            if sub_blocks > _MAX_SUB_BLOCKS:
                return _LARGEST_GIF_PIXELS
    if data[offset] != _IMAGE:
        return 0
    left, top, frame_width, frame_height = struct.unpack_from("<4H", data, offset + 1)
    return int(max(width, left + frame_width) * max(height, top + frame_height))


def _bmp(data: bytes) -> int:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == _OS2_HEADER_BYTES else "<Ii", data, 18)
    return int(width * abs(height))  # negative if rows are stored from top to bottom


def _webp(data: bytes) -> int:
    (variant,) = struct.unpack_from("4s", data, 12)
    if variant == b"VP8 ":
        width, height = (side % 2**14 for side in struct.unpack_from("<HH", data, 26))
    elif variant == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = bits % 2**14 + 1, bits // 2**14 % 2**14 + 1
    elif variant == b"VP8X":
        low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
        width, height = low_width + 2**16 * high_width + 1, low_height + 2**16 * high_height + 1
    else:
        return 0
    return int(width * height)


# By the first bytes, of which some are those of other files too.
_READERS: dict[bytes, Callable[[bytes], int]] = {
    b"\xff\xd8\xff": _jpeg,
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF8": _gif,
    b"BM": _bmp,
    b"RIFF": _webp,
}
_STARTS = tuple(_READERS)
_LONGEST_START = max(map(len, _STARTS))
