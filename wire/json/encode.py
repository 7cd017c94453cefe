"""Writes JSON in tensorflow_model_server's format: arrays of responses, and JSON values that error messages show.

Arrays have C's %g for numbers, and its line breaks for lists; each character of the str values of their functions
represents one byte (Latin-1), so that strings pass unchanged even if they are not valid UTF-8. Numbers in error
messages have RapidJSON's layout.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, DType
from savedmodel_bakery.wire.json.parser import JsonValue, members_of
from savedmodel_bakery.wire.status import cut, invalid_argument

_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
_TINY = {name: np.finfo(dtype).tiny for name, dtype in _FLOATS.items()}
_LONG_FORMAT = {"float": "%.9g", "double": "%.17g"}
_INTEGERS = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"})
_NON_FINITE = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_SLICE = 2**14  # elements per step, so that other threads are blocked for milliseconds only
_BOOLS = ("false", "true")
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(text: str) -> str:
    r"""Write a JSON string: escape `"`, `\` and control characters, and nothing else."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04X}"


def quote_bytes(raw: bytes | str) -> str:
    """Write bytes as a JSON string; they need not be valid UTF-8."""
    return quote((raw.encode() if isinstance(raw, str) else raw).decode("latin-1"))


def float_texts(values: np.ndarray, dtype_name: str = "float") -> list[str]:
    """Write each element of a float32 or float64 array, flat, with as many digits as tensorflow_model_server.

    That is six digits, or nine (seventeen for a double) if six don't read back as the same number. `.0` is added to
    what looks like an integer; denormal numbers are `0.0` or `-0.0`; `NaN` and `Infinity` are bare words.
    """
    flat = values.astype(_FLOATS[dtype_name]).ravel()
    texts: list[str] = []
    for start in range(0, len(flat), _SLICE):
        texts += _float_texts(flat[start : start + _SLICE], dtype_name)
    return texts


def _float_texts(flat: np.ndarray, dtype_name: str) -> list[str]:
    # tensorflow_model_server flushes denormals to zero, which is visible in its responses.
    is_denormal = np.abs(flat) < _TINY[dtype_name]
    if is_denormal.any():
        flat[is_denormal] *= 0
    numbers = flat.tolist()
    texts = ("%g " * len(numbers) % tuple(numbers)).split()
    with np.errstate(over="ignore"):
        read_back = np.fromiter(map(float, texts), np.float64, len(texts)).astype(flat.dtype)
    long_format = _LONG_FORMAT[dtype_name]
    for index in np.flatnonzero(read_back != flat).tolist():
        texts[index] = long_format % numbers[index]
    return [text if "." in text or "e" in text else _NON_FINITE.get(text) or text + ".0" for text in texts]


def element_texts(values: np.ndarray, dtype: DType, *, as_base64: bool = False, level: int = 0) -> list[str]:
    """Write each element of an array, flat.

    `as_base64` writes strings as `{"b64": …}` objects, indented by `level`, the number of lists and objects around
    them.
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
    return f'{{{new_line(level + 1)}"b64": "{data}"{new_line(level)}}}'


def new_line(level: int) -> str:
    """Return a line break and four spaces of indentation per level."""
    return "\n" + "    " * level


def nest(texts: list[str], shape: Sequence[int], *, count: int = 1, level: int = 0, one_line: bool) -> list[str]:
    """Join the texts of elements to `count` nested lists of this shape, each inside `level` lists and objects.

    Elements are on one line, or one per line. Without a shape, the texts are returned as they are.
    """
    for axis in reversed(range(len(shape))):
        size = shape[axis]
        lists = count * math.prod(shape[:axis])
        if size == 0:
            texts = ["[]"] * lists
            continue
        first, between, last = "[", ", ", "]"
        if not one_line:
            inner = new_line(level + axis + 1)
            first, between, last = "[" + inner, "," + inner, new_line(level + axis) + "]"
        texts = [first + between.join(texts[start : start + size]) + last for start in range(0, lists * size, size)]
    return texts


SHOWN_BYTES = 259


def type_name(value: JsonValue) -> str:
    """Return the name of a value's JSON type in error messages, where True and False are separate types."""
    if value is None or isinstance(value, bool):
        return {None: "Null", True: "True", False: "False"}[value]
    if isinstance(value, (int, float)):
        return "Number"
    if isinstance(value, str):
        return "String"
    return "Array" if isinstance(value, list) else "Object"


def show_value(value: JsonValue) -> str:
    """Write a value for an error message: four spaces per level, lists on one line, cut after 259 bytes.

    Visits only the part of the value that is shown, however large or deep it is. Cuts between characters.
    """
    pieces: list[str] = []
    room = SHOWN_BYTES
    for piece in _pieces(value):
        raw = piece.encode("utf-8", "surrogateescape")
        if len(raw) > room:
            pieces.append(cut(raw, room))
            break
        pieces.append(piece)
        room -= len(raw)
    return "".join(pieces)


def shown_name(name: str) -> str:
    """Return a name for an error message, cut after 259 characters."""
    return name[:SHOWN_BYTES]


def _pieces(value: JsonValue, level: int = 0) -> Iterator[str]:
    """Yield the text of a value piece by piece. Each level yields a piece before it recurses, so few are entered."""
    if isinstance(value, list):
        yield "["
        for index, item in enumerate(value):
            if index:
                yield ", "
            yield from _pieces(item, level + 1)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for index, (name, item) in enumerate(members_of(value)):
            yield f"{',' if index else ''}{new_line(level + 1)}{quote(shown_name(name))}: "
            yield from _pieces(item, level + 1)
        yield new_line(level) + "}" if value else "}"
    elif isinstance(value, str):
        yield quote(value[:SHOWN_BYTES])
    elif isinstance(value, float) and math.isfinite(value):
        yield _float_text(value)
    else:
        yield json.dumps(value)


def _float_text(number: float) -> str:
    """Write a finite number in RapidJSON's layout: `150.0` up to 21 digits, otherwise `1.5e22`."""
    shortest = Decimal(repr(number))
    if -6 <= shortest.adjusted() <= 20:
        text = f"{shortest:f}"
        return text if "." in text else text + ".0"
    return f"{shortest:e}".replace("e+", "e")
