"""What parsing a JSON text may use, and an estimate of what it will use, without parsing it. Knows no requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_MANY_VALUES = 200_000  # which take about 10 ms
_FEW = 16
_SHORT_BYTES = 2**16
_COUNTED_BYTES = 2**20

# Memory in bytes while a request is decoded, measured with CPython 3.11 and rounded up.
_VALUE_BYTES = 72  # a number, its places in lists, and its element of an array
_LIST_BYTES = 128
_OBJECT_BYTES = 560  # with a member; objects with repeated names keep their members twice
_STRING_BYTES = 200  # its header, as text and as bytes, and its share of an object
_TEXT_COPIES = 4  # two while it is parsed, strings, and their bytes
_WIDE_TEXT_COPIES = 13  # with characters of up to four bytes, or bytes that are not UTF-8


@dataclass(frozen=True)
class Survey:
    """What a text contains, at most: brackets and commas in strings are counted too."""

    values: int  # of any type
    size: int  # bytes of memory that parsing and decoding it needs

    @property
    def is_large(self) -> bool:
        """Whether it takes long to parse, and so is parsed slice by slice."""
        return self.values > _MANY_VALUES


@dataclass(frozen=True)
class ParseLimits:
    """Limits of one parse; the defaults have no effect."""

    check: Callable[[], None] = lambda: None  # called now and then; raises to end the parse
    prepare: Callable[[Survey], object] = lambda _content: None  # called before the parse; raises to prevent it
    parsed: Callable[[Any], object] = lambda _value: None  # called with each large value, see `parser.discard`


NO_LIMITS = ParseLimits()


def survey(text: bytes) -> Survey:
    """Count what a text contains. Takes up to 0.5 ms per MB."""
    lists, objects, commas, quotes = (_count(text, token) for token in (b"[", b"{", b",", b'"'))
    # Python stores each character of a string in as many bytes as its widest one.
    copies = _WIDE_TEXT_COPIES if b"\\" in text or not text.isascii() else _TEXT_COPIES
    return Survey(
        values=lists + objects + commas + 1,
        size=_VALUE_BYTES * (commas + 1)
        + _LIST_BYTES * lists
        + _OBJECT_BYTES * objects
        + _STRING_BYTES * (quotes // 2)
        + copies * len(text),
    )


def _count(text: bytes, token: bytes) -> int:
    if len(text) <= _SHORT_BYTES:
        return text.count(token)
    position = -1
    for count in range(_FEW):  # a photo in base64 is long, and contains none
        position = text.find(token, position + 1)
        if position < 0:
            return count
    # Holds no lock of the interpreter meanwhile.
    octets, code = np.frombuffer(text, np.uint8), ord(token)
    return sum(
        int(np.count_nonzero(octets[start : start + _COUNTED_BYTES] == code))
        for start in range(0, len(octets), _COUNTED_BYTES)
    )
