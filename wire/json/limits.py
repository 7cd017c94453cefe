"""What parsing a JSON text may use, and an estimate of what it will use, without parsing it. Knows no requests."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.wire.status import Code, StatusError

SLICE_BYTES = 2**16
"""How much of a text is parsed or examined at a time, so that other threads are blocked for milliseconds only."""
_MANY_VALUES = 20_000

_FEW = 16
_COUNTED_BYTES = 2**20
_TABLE = np.zeros(256, np.int8)
_TABLE[list(b"[{")] = 1
_TABLE[list(b"]}")] = -1
_STEPS = _TABLE.tobytes()

# Memory in bytes while a request is decoded, measured with CPython 3.11 and rounded up.
_VALUE_BYTES = 72  # a number, its places in lists, and its element of an array
_LIST_BYTES = 128
_OBJECT_BYTES = 560  # with a member; objects of the exact parser keep their members twice
_STRING_BYTES = 200  # its header, as text and as bytes, and its share of an object
_TEXT_COPIES = 3


@dataclass(frozen=True)
class Survey:
    """What a text contains, at most: brackets and commas in strings are counted too.

    Attributes:
        containers: lists and objects.
        values: values of any type.
        size: bytes of memory that parsing and decoding it needs.
    """

    containers: int
    values: int
    size: int

    @property
    def is_large(self) -> bool:
        """Whether it takes long to parse, and so is parsed slice by slice."""
        return self.values > _MANY_VALUES


@dataclass(frozen=True)
class ParseLimits:
    """Limits of one parse; the defaults have no effect.

    Attributes:
        nesting: lists and objects inside each other.
        check: is called now and then; raises to end the parse.
        prepare: is called before the parse, with what the text contains; raises to prevent it.
        opened: is called with each list and object that is not parsed by the standard library, see `exact.discard`.
    """

    nesting: float = math.inf
    check: Callable[[], None] = lambda: None
    prepare: Callable[[Survey], object] = lambda _content: None
    opened: Callable[[Any], object] = lambda _container: None

    def check_nesting(self, levels: int) -> None:
        """Check a number of levels.

        Raises:
            StatusError: RESOURCE_EXHAUSTED: there are too many.
        """
        if levels > self.nesting:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"the request nests more than {self.nesting} JSON arrays and objects (--max_json_nesting)",
                limit="max_json_nesting",
            )


NO_LIMITS = ParseLimits()


def survey(text: bytes) -> Survey:
    """Count what a text contains. Takes up to 0.5 ms per MB."""
    lists, objects, commas, quotes = (_count(text, token) for token in (b"[", b"{", b",", b'"'))
    highest = 0 if text.isascii() else int(np.frombuffer(text, np.uint8).max())
    # Python stores each character of a string in as many bytes as its widest one.
    width = 4 if highest >= 0xF0 or b"\\" in text else 2 if highest >= 0x80 else 1
    return Survey(
        containers=lists + objects,
        values=lists + objects + commas + 1,
        size=_VALUE_BYTES * (commas + 1)
        + _LIST_BYTES * lists
        + _OBJECT_BYTES * objects
        + _STRING_BYTES * (quotes // 2)
        + (_TEXT_COPIES + width) * len(text),
    )


def check_nesting(text: bytes, limits: ParseLimits) -> None:
    """Check the depth of the first value of a text, without parsing it.

    Raises:
        StatusError: RESOURCE_EXHAUSTED: it is deeper than the limit; or an error of `limits.check`.
    """
    position = min((index for index in (text.find(b"["), text.find(b"{")) if index >= 0), default=len(text))
    depth, in_string = 0, False
    while position < len(text):
        limits.check()
        piece = text[position : position + SLICE_BYTES]
        piece = piece[: len(piece.rstrip(b"\\"))] or piece  # does not end within an escape: a slice has an even size
        depths, in_string = depths_of(piece, in_string=in_string)
        end = int(np.argmax(depths <= -depth)) if depth + depths.min() <= 0 else len(piece)
        limits.check_nesting(depth + int(depths[:end].max(initial=0)))
        if end < len(piece):
            return
        depth += int(depths[-1])
        position += len(piece)


def depths_of(piece: bytes, *, in_string: bool) -> tuple[np.ndarray, bool]:
    """Return by how many levels each byte of a piece of JSON text is deeper than its start.

    Args:
        piece: begins between two tokens, or inside of a string but not of an escape.
        in_string: whether it begins inside of a string.

    Returns:
        int32, [byte]; in strings, the depth of the string; and whether the piece ends inside of a string.
    """
    steps = np.frombuffer(piece.translate(_STEPS), np.int8)
    if in_string or b'"' in piece:
        inside = inside_strings(piece, in_string=in_string)
        steps = np.where(inside, 0, steps)
        in_string = bool(inside[-1])
    return np.cumsum(steps, dtype=np.int32), in_string


def inside_strings(piece: bytes, *, in_string: bool) -> np.ndarray:
    """Return which bytes of a piece are inside of strings, the opening quotation mark included: bool, [byte]."""
    octets = np.frombuffer(piece, np.uint8)
    quotes = octets == ord('"')
    if b"\\" in piece:
        is_plain = octets != ord("\\")
        indices = np.arange(len(octets), dtype=np.int32)
        last_plain = np.maximum.accumulate(np.where(is_plain, indices, -1))
        backslashes = indices[:-1] - last_plain[:-1]  # in a row, up to and including this byte
        quotes[1:] &= backslashes % 2 == 0
    return ((np.cumsum(quotes, dtype=np.uint8) + in_string) & 1).astype(bool)


def _count(text: bytes, token: bytes) -> int:
    if len(text) <= SLICE_BYTES:
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
