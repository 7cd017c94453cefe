"""In what one answer differs from another. Must not know where either came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

_INEXACT = "fcV"  # kinds of numbers with a fraction; V is that of ml_dtypes, as bfloat16


def compare(
    expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], atol_of: Callable[[str], float]
) -> list[str]:
    """Say in what the outputs in `found` differ from those expected; nothing where they agree.

    Args:
        expected: alias to array; outputs beyond these may be there.
        found: alias to array.
        atol_of: how far numbers with a fraction may be off, by alias; anything else must be equal. NaN equals NaN.
    """
    missing = [f'there is no output "{alias}"' for alias in expected if alias not in found]
    differences = (
        _difference(alias, wanted, found[alias], atol_of(alias)) for alias, wanted in expected.items() if alias in found
    )
    return missing + [difference for difference in differences if difference]


def _difference(alias: str, wanted: np.ndarray, found: np.ndarray, atol: float) -> str:
    if found.shape != wanted.shape:
        return f'"{alias}" has shape {list(found.shape)}, it had {list(wanted.shape)}'
    if found.dtype != wanted.dtype:
        return f'"{alias}" is {found.dtype}, it was {wanted.dtype}'
    if wanted.dtype.kind in _INEXACT:
        apart = _apart(wanted.astype(np.complex128), found.astype(np.complex128))
        return "" if apart <= atol else f'"{alias}" differs by {apart:.3g}; allowed is {atol:g}'
    differing = np.argwhere(found != wanted)
    if not len(differing):
        return ""
    first = tuple(differing[0])
    return f'"{alias}" is {found[first]!r} at {list(map(int, first))}, it was {wanted[first]!r}'


def _apart(wanted: np.ndarray, found: np.ndarray) -> float:
    """The largest difference of two numbers; infinite where only one of them is finite, or a number."""
    is_same = (wanted == found) | (np.isnan(wanted) & np.isnan(found))
    differences = np.abs(found[~is_same] - wanted[~is_same])
    return float(np.max(np.where(np.isfinite(differences), differences, np.inf), initial=0.0))
