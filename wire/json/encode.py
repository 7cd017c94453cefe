"""Arrays to JSON text, as tensorflow_model_server prints them: C's %g for numbers, its line breaks for lists.

Texts here are str whose characters stand for bytes (Latin-1), so that strings pass unchanged whatever is in
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, DType
from savedmodel_bakery.wire.json.text import quote
from savedmodel_bakery.wire.status import invalid_argument

_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
_LONG_FORMAT = {"float": "%.9g", "double": "%.17g"}
_INTEGERS = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"})
_NON_FINITE = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_BOOLS = ("false", "true")


def quote_bytes(raw: bytes | str) -> str:
    """Write bytes as a JSON string; no UTF-8 is asked of them."""
    return quote((raw.encode() if isinstance(raw, str) else raw).decode("latin-1"))


def float_texts(values: np.ndarray, dtype_name: str = "float") -> list[str]:
    """Print each element of a float32 or float64 array, flat, with as few digits as upstream takes.

    Six digits, or nine (seventeen for a double) where six don't read back. `.0` is added to what looks like
    an integer; denormal numbers are `0.0` or `-0.0`; `NaN` and `Infinity` are bare words.
    """
    kind = _FLOATS[dtype_name]
    flat = values.astype(kind).ravel()
    # tensorflow_model_server runs with denormals flushed, which its answers show.
    flat[np.abs(flat) < np.finfo(kind).tiny] *= 0
    numbers = flat.tolist()
    texts = ("%g " * len(numbers) % tuple(numbers)).split()
    with np.errstate(over="ignore"):
        read_back = np.fromiter(map(float, texts), np.float64, len(texts)).astype(kind)
    long_format = _LONG_FORMAT[dtype_name]
    for index in np.flatnonzero(read_back != flat).tolist():
        texts[index] = long_format % numbers[index]
    return [text if "." in text or "e" in text else _NON_FINITE.get(text) or text + ".0" for text in texts]


def element_texts(values: np.ndarray, dtype: DType, *, as_base64: bool = False, level: int = 0) -> list[str]:
    """Print each element of an array, flat.

    Args:
        values: any shape; strings as objects of bytes.
        dtype: what the signature says of the output.
        as_base64: write strings as `{"b64": …}` objects.
        level: how many lists and objects stand around an element; indents such objects.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that JSON can't carry, if there are elements.
    """
    if values.size == 0:
        return []
    if dtype.name in _FLOATS:
        return float_texts(values, dtype.name)
    flat = values.ravel().tolist()
    if dtype.name in _INTEGERS:
        return list(map(str, flat))
    if dtype.name == "bool":
        return [_BOOLS[value] for value in flat]
    if dtype is STRING:
        return [_base64_text(value, level) for value in flat] if as_base64 else list(map(quote_bytes, flat))
    raise invalid_argument(f"Failed to write JSON value for tensor type: {dtype.name}")


def _base64_text(raw: bytes | str, level: int) -> str:
    data = pybase64.b64encode_as_string(raw.encode() if isinstance(raw, str) else raw)
    return f'{{{line(level + 1)}"b64": "{data}"{line(level)}}}'


def line(level: int) -> str:
    """A new line, indented by four spaces a level."""
    return "\n" + "    " * level


def nest(texts: list[str], shape: Sequence[int], *, count: int = 1, level: int = 0, one_line: bool) -> list[str]:
    """Join flat element texts to nested lists.

    Args:
        texts: `count` times the product of `shape` texts.
        shape: sizes of the axes to nest; none leaves the texts as they are.
        count: how many lists are to come out.
        level: how many lists and objects stand around each of them.
        one_line: write elements on one line, else one a line.
    """
    for axis in reversed(range(len(shape))):
        size = shape[axis]
        lists = count * math.prod(shape[:axis])
        if size == 0:
            texts = ["[]"] * lists
            continue
        first, between, last = "[", ", ", "]"
        if not one_line:
            inner = line(level + axis + 1)
            first, between, last = "[" + inner, "," + inner, line(level + axis) + "]"
        texts = [first + between.join(texts[start : start + size]) + last for start in range(0, lists * size, size)]
    return texts
