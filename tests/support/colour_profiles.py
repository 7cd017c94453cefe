"""ICC profiles for tests, written by hand (ICC.1:2001-04): Pillow has none but sRGB."""

from __future__ import annotations

import struct

import numpy as np

# Columns of the colours of Display P3 and sRGB in XYZ, adapted to D50 (their own ICC profiles).
DISPLAY_P3 = ((0.5151, 0.2412, -0.0011), (0.2920, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841))
SRGB = ((0.4361, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
_D50 = (0.9642, 1.0, 0.8249)
GAMMA = 2.2


def _xyz(values: tuple[float, float, float]) -> bytes:
    return struct.pack(">3i", *(round(value * 65536) for value in values))


def profile(name: str, colours: tuple[tuple[float, float, float], ...] = DISPLAY_P3) -> bytes:
    """Return a profile for RGB with these colours and a gamma of 2.2."""
    text = name.encode() + b"\0"
    description = b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(4 + 4 + 2 + 1 + 67)
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(GAMMA * 256))
    tags = {b"desc": description, b"cprt": b"text\0\0\0\0none\0", b"wtpt": b"XYZ \0\0\0\0" + _xyz(_D50)}
    tags |= {b"%cXYZ" % c: b"XYZ \0\0\0\0" + _xyz(colour) for c, colour in zip(b"rgb", colours, strict=True)}
    tags |= {b"%cTRC" % c: curve for c in b"rgb"}
    table, data = struct.pack(">I", len(tags)), b""
    for tag, content in tags.items():
        table += tag + struct.pack(">II", 128 + 4 + 12 * len(tags) + len(data), len(content))
        data += content + bytes(-len(content) % 4)
    size = 128 + len(table) + len(data)
    header = struct.pack(">I4xI4s4s4s12x4s", size, 0x02400000, b"mntr", b"RGB ", b"XYZ ", b"acsp")
    return header.ljust(68, b"\0") + _xyz(_D50) + bytes(48) + table + data


def to_srgb(levels: np.ndarray, colours: tuple[tuple[float, float, float], ...] = DISPLAY_P3) -> np.ndarray:
    """Return the sRGB levels, 0..255, of levels [..., 3] in such a profile (sRGB's curve: IEC 61966-2-1)."""
    linear = (levels / 255) ** GAMMA @ np.array(colours) @ np.linalg.inv(np.array(SRGB))
    linear = linear.clip(0, 1)
    return np.asarray(255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055))
