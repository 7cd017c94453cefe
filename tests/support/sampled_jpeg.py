"""Encodes JPEG files with any sampling factors, which Pillow can't write; each block has one random level."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

_SIZES = range(12)  # sizes of differences in bits; each has a Huffman code of four bits
_QUANTIZATION = bytes([8] * 64)  # makes the first coefficient of a block its level


def encode(factors: Sequence[tuple[int, int]], width: int, height: int) -> bytes:
    """Return a baseline file (ITU-T T.81, annexes B and F) with (horizontal, vertical) factors for Y, Cb and Cr."""
    rng = random.Random(0)
    horizontal_max, vertical_max = (max(pair[axis] for pair in factors) for axis in (0, 1))
    units = -(-width // (8 * horizontal_max)) * -(-height // (8 * vertical_max))
    previous = [0] * len(factors)
    bits = []
    for _ in range(units):
        for component, (horizontal, vertical) in enumerate(factors):
            for _ in range(horizontal * vertical):
                level = rng.randrange(-100, 100)
                bits.append(_difference(previous[component], level) + "0")
                previous[component] = level
    joined = "".join(bits)
    joined += "1" * (-len(joined) % 8)
    scan = int(joined, 2).to_bytes(len(joined) // 8, "big").replace(b"\xff", b"\xff\x00")
    components = b"".join(bytes([number, 16 * h + v, 0]) for number, (h, v) in enumerate(factors, 1))
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, b"\0" + _QUANTIZATION),
            _segment(0xC0, struct.pack(">BHHB", 8, height, width, len(factors)) + components),
            _segment(0xC4, b"\x00" + bytes([0, 0, 0, len(_SIZES), *[0] * 12]) + bytes(_SIZES)),
            _segment(0xC4, b"\x10" + bytes([1, *[0] * 15]) + b"\0"),
            _segment(
                0xDA, bytes([len(factors)]) + b"".join(bytes([1 + i, 0]) for i in range(len(factors))) + b"\0\x3f\0"
            ),
            scan,
            b"\xff\xd9",
        ]
    )


def _segment(marker: int, contents: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(contents)) + contents


def _difference(previous: int, level: int) -> str:
    """Return the code of a level that follows another: the code of the difference's size, then its bits."""
    difference = level - previous
    size = abs(difference).bit_length()
    bits = difference if difference > 0 else difference + 2**size - 1
    return f"{size:04b}" + (f"{bits:0{size}b}" if size else "")
