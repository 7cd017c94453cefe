"""The pixels that images claim in their headers: decoding a file of 12 kB may take 400 MB.

By the rules of the graphs that the bakery makes (exporter/image: header, chunks, gif and encodings), so that
what they decode never has more pixels than it claims here. Libraries that read sizes have other rules: imagesize does
not see a GIF's first frame that exceeds the canvas, and gives up on JPEG segments that libjpeg skips.
"""

from __future__ import annotations

import binascii
import re
import struct
from collections.abc import Callable, Collection
from typing import NamedTuple

from savedmodel_bakery.serving.admission.budget import Cost

_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_INVISIBLE = bytes(range(ord(" ") + 1))  # the graph drops these from base64
_FIRST_SYMBOLS = 64  # of base64; enough for all sizes except some JPEG and GIF files'
_GROWTH = 32

# JPEG, ITU-T T.81, table B.1
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE_FRAMES = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
_SCAN = 0xDA
_NO_CONTENTS = frozenset({0x01, *range(0xD0, 0xD8)})
_MAX_SEGMENTS = 1024
# GIF89a, sections 15 to 27
_EXTENSION, _IMAGE = 0x21, 0x2C
_MAX_SUB_BLOCKS = 2**16
_LARGEST_GIF_PIXELS = (2 * 65535) ** 2
_OS2_HEADER_BYTES = 12  # of BMP
_IS_ANIMATED = 0x02  # flag of WebP's VP8X


class Claim(NamedTuple):
    """What an image file claims."""

    pixels: int
    bytes_per_pixel: int = Cost.PIXEL  # of memory, while it is decoded and resized


_NOTHING = Claim(0)  # of what is no image file


def claim(value: bytes) -> Claim:
    """Return what an image file, or its base64, claims."""
    if value.startswith(_STARTS):
        return _read_claim(value) or _NOTHING
    start = value.find(b",") + 1 if value[:5].lower() == b"data:" else 0
    size = _FIRST_SYMBOLS
    while True:
        symbols = value[start : start + size].translate(_TO_STANDARD, _INVISIBLE)
        try:
            head = binascii.a2b_base64(symbols[: len(symbols) // 4 * 4])
        except binascii.Error:
            return _NOTHING
        if len(head) >= _LONGEST_START and not head.startswith(_STARTS):
            return _NOTHING
        read = _read_claim(head)
        if read or start + size >= len(value):
            return read or _NOTHING
        size *= _GROWTH


def _read_claim(data: bytes) -> Claim | None:
    """Return the claim of an image file; None if `data` ends before its size."""
    for start, read in _READERS.items():
        if data.startswith(start):
            try:
                return read(data)
            except (IndexError, struct.error):
                return None
    return None


def _jpeg(data: bytes) -> Claim:
    frame = _find_marker(data, 2, _FRAMES)
    if frame is None:
        return _NOTHING
    height, width, components = struct.unpack_from(">HHB", data, frame + 5)
    try:
        scan = _find_marker(data, frame, {_SCAN})
        has_one_scan = scan is not None and data[scan + 4] == components
    except (IndexError, struct.error):
        has_one_scan = False
    if has_one_scan and data[frame + 1] not in _PROGRESSIVE_FRAMES:
        return Claim(height * width)
    return Claim(height * width, max(Cost.PIXEL, Cost.SCANS_PIXEL + Cost.COMPONENT_PIXEL * components))


def _find_marker(data: bytes, offset: int, markers: Collection[int]) -> int | None:
    """Return the offset of the first of these markers; None if the scan, or too many segments, are before it."""
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(data, offset)
        if not found:
            raise IndexError("the file ends before the marker")
        offset = found.start()
        marker = data[offset + 1]
        if marker in markers:
            return offset
        if marker == _SCAN:
            return None
        if marker in _NO_CONTENTS:
            offset += 2
        else:
            (length,) = struct.unpack_from(">H", data, offset + 2)
            offset += 2 + max(length, 2)
    return None


def _png(data: bytes) -> Claim:
    width, height, bit_depth = struct.unpack_from(">IIB", data, 16)
    return Claim(width * height, Cost.DEEP_PIXEL if bit_depth == 16 else Cost.PIXEL)


def _gif(data: bytes) -> Claim:
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
                return Claim(_LARGEST_GIF_PIXELS)
    if data[offset] != _IMAGE:
        return _NOTHING
    frame = left, top, frame_width, frame_height = struct.unpack_from("<4H", data, offset + 1)
    pixels = max(width, left + frame_width) * max(height, top + frame_height)
    return Claim(pixels, Cost.PIXEL if frame == (0, 0, width, height) else Cost.CANVAS_PIXEL)


def _bmp(data: bytes) -> Claim:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == _OS2_HEADER_BYTES else "<Ii", data, 18)
    return Claim(width * abs(height))  # negative if rows are stored from top to bottom


def _webp(data: bytes) -> Claim:
    (variant,) = struct.unpack_from("4s", data, 12)
    if variant == b"VP8 ":
        bytes_per_pixel = Cost.PIXEL
        width, height = (side % 2**14 for side in struct.unpack_from("<HH", data, 26))
    elif variant == b"VP8L":
        bytes_per_pixel = Cost.CANVAS_PIXEL
        (bits,) = struct.unpack_from("<I", data, 21)
        width, height = bits % 2**14 + 1, bits // 2**14 % 2**14 + 1
    elif variant == b"VP8X":
        low_width, high_width, low_height, high_height = struct.unpack_from("<HBHB", data, 24)
        width, height = low_width + 2**16 * high_width + 1, low_height + 2**16 * high_height + 1
        bytes_per_pixel = Cost.ANIMATION_PIXEL if data[20] & _IS_ANIMATED else Cost.CANVAS_PIXEL
    else:
        return _NOTHING
    return Claim(width * height, bytes_per_pixel)


# By the first bytes, of which some are those of other files too.
_READERS: dict[bytes, Callable[[bytes], Claim]] = {
    b"\xff\xd8\xff": _jpeg,
    b"\x89PNG\r\n\x1a\n": _png,
    b"GIF8": _gif,
    b"BM": _bmp,
    b"RIFF": _webp,
}
_STARTS = tuple(_READERS)
_LONGEST_START = max(map(len, _STARTS))
