"""Small image files that need much memory when they are decoded."""

from __future__ import annotations

import struct
import zlib

GRAY, RGB, PALETTE, RGBA = 0, 2, 3, 6
_CHANNELS = {GRAY: 1, RGB: 3, PALETTE: 1, RGBA: 4}


def png(side: int, colour_type: int, rows: int, *, bits: int = 8) -> bytes:
    """A PNG file whose header states a square of `side` pixels, with `rows` rows of zeros (third edition, 5 and 11).

    Args:
        side: pixels.
        colour_type: one of the constants of this module.
        rows: rows in the file; `side` for a complete image.
        bits: bits of a sample.
    """
    packer = zlib.compressobj(9)
    row = bytes(1 + -(-side * bits * _CHANNELS[colour_type] // 8))
    packed = b"".join([*(packer.compress(row) for _ in range(rows)), packer.flush()])
    palette = [b"PLTE" + bytes(768)] if colour_type == PALETTE else []
    parts = [
        b"IHDR" + struct.pack(">IIBBBBB", side, side, bits, colour_type, 0, 0, 0),
        *palette,
        b"IDAT" + packed,
        b"IEND",
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts
    )
