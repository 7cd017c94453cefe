"""JPEG files with any sampling factors, which Pillow doesn't write: blocks of one level each, at random."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

_SIZES = range(12)  # of differences, in bits; each has a code of four
_EVEN = bytes([8] * 64)  # a quantization table with which a block's first number is its level


def encode(factors: Sequence[tuple[int, int]], width: int, height: int) -> bytes:
    """A baseline file (ITU-T T.81, annexes B and F) of these factors, horizontal and vertical, for Y, Cb and Cr."""
    chosen = random.Random(0)
    across, down = (max(pair[axis] for pair in factors) for axis in (0, 1))
    units = -(-width // (8 * across)) * -(-height // (8 * down))
    before = [0] * len(factors)
    bits = []
    for _ in range(units):
        for place, (horizontal, vertical) in enumerate(factors):
            for _ in range(horizontal * vertical):
                level = chosen.randrange(-100, 100)
                bits.append(_difference(before[place], level) + "0")
                before[place] = level
    joined = "".join(bits)
    joined += "1" * (-len(joined) % 8)
    scan = int(joined, 2).to_bytes(len(joined) // 8, "big").replace(b"\xff", b"\xff\x00")
    components = b"".join(bytes([place, 16 * h + v, 0]) for place, (h, v) in enumerate(factors, 1))
    return b"".join(
        [
            b"\xff\xd8",
            _segment(0xDB, b"\0" + _EVEN),
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


def _difference(before: int, level: int) -> str:
    """How a level is written after the one before: its size's code, and so many bits."""
    difference = level - before
    size = abs(difference).bit_length()
    bits = difference if difference > 0 else difference + 2**size - 1
    return f"{size:04b}" + (f"{bits:0{size}b}" if size else "")
