"""Compares outputs with expected outputs. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

_INEXACT = "fcV"  # dtype kinds with fractions; V is that of ml_dtypes types such as bfloat16


def compare(
    expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray], atol_of: Callable[[str], float]
) -> list[str]:
    """Return a description of each expected output that differs. NaN equals NaN.

    `atol_of` returns the absolute tolerance of an output, for numbers with a fraction. Anything else must be equal.
    """
    missing = [f'output "{alias}" is missing' for alias in expected if alias not in actual]
    differences = (
        _difference(alias, array, actual[alias], atol_of(alias)) for alias, array in expected.items() if alias in actual
    )
    return missing + [difference for difference in differences if difference]


def _difference(alias: str, expected: np.ndarray, actual: np.ndarray, atol: float) -> str:
    if actual.shape not in (expected.shape, _shape_in_json(expected)):
        return f'"{alias}" has shape {list(actual.shape)}, expected {list(expected.shape)}'
    if actual.dtype != expected.dtype:
        return f'"{alias}" is {actual.dtype}, expected {expected.dtype}'
    if not expected.size:
        return ""
    if expected.dtype.kind in _INEXACT:
        difference = _max_difference(expected.astype(np.complex128), actual.astype(np.complex128))
        return "" if difference <= atol else f'"{alias}" differs by {difference:.3g}; allowed is {atol:g}'
    differing = np.argwhere(actual != expected)
    if not len(differing):
        return ""
    first = tuple(differing[0])
    return f'"{alias}" is {actual[first]!r} at {list(map(int, first))}, expected {expected[first]!r}'


def _shape_in_json(array: np.ndarray) -> tuple[int, ...]:
    """Return the shape that nested lists have: nothing is inside an empty one."""
    return array.shape[: array.shape.index(0) + 1] if 0 in array.shape else array.shape


def _max_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the largest difference; infinite if only one of two numbers is finite, or is a number."""
    is_same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    differences = np.abs(actual[~is_same] - expected[~is_same])
    return float(np.max(np.where(np.isfinite(differences), differences, np.inf), initial=0.0))
