"""Masks, and the run lengths that pycocotools 2.0.11 encodes them in."""

from __future__ import annotations

import numpy as np


def _with(shape: tuple[int, int], *parts: tuple[slice, slice]) -> np.ndarray:
    mask = np.zeros(shape, bool)
    for part in parts:
        mask[part] = True
    return mask


_ALL = slice(None)
_Y, _X = np.indices((9, 7))
RECORDED = {
    "empty": (_with((3, 4)), "<"),
    "full": (_with((3, 4), (_ALL, _ALL)), "0<"),
    "corner": (_with((3, 4), (slice(1, None), slice(1, 3))), "42102"),
    "noise": (np.random.default_rng(0).random((6, 5)) < 0.5, "341M000040L14OM"),
    "large": (_with((1200, 303), (slice(100, 1100), slice(300, 303))), "Teo:Xo0X6000lL"),
    "circle": ((_Y - 4) ** 2 + (_X - 3) ** 2 < 10, "4164N0O20N102LN"),
    "high": (
        _with((70000, 20), (slice(5, 69000), slice(3, 4)), (_ALL, slice(4, 5)), (slice(100, 101), slice(7, 8))),
        "eR]6S\\S2Xo0]o0ljW4adkMWh_g0",
    ),
}
