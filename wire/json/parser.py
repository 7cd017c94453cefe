"""Parses JSON with RapidJSON, the parser of tensorflow_model_server: the same values, errors and byte offsets.

A survey estimates what parsing a text will use, without parsing it; the limits of a parse say what it may use.
"""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import IO, Any, TypeAlias, cast

import numpy as np
import rapidjson

from savedmodel_bakery.wire.status import invalid_argument

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\n\r"
_SHORT_BYTES = 1024  # not worth a survey: parsing takes 100 kB at most
_SLICE_BYTES = 2**16  # so that other threads are blocked for milliseconds only
_STEP = 2**12  # elements or members per step, for the same reason
_NUMBERS = rapidjson.NM_NATIVE | rapidjson.NM_NAN
_OBJECT = re.compile(rb"[ \t\n\r]*\{")
_ERROR = re.compile(r"Parse error at offset (\d+): (.*)")
_INVALID = "Invalid value."
_INVALID_ENCODING = "Invalid encoding in string."  # is said of control characters only
_NO_VALUE = (b"]", b"}", b",", b":")
_FOLLOWED = "The document root must not be followed by other values."

# U+F780 to U+F7FF, private characters, stand for bytes that are not UTF-8 while RapidJSON parses them.
_ESCAPES = {0xF700 + byte: 0xDC00 + byte for byte in range(0x80, 0x100)}

_MANY_VALUES = 200_000  # which take about 10 ms
_FEW = 16
_COUNTED_AT_ONCE = 2**16  # bytes
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
    if len(text) <= _COUNTED_AT_ONCE:
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


class Members(dict[str, JsonValue]):
    """A JSON object with repeated names; as a dict it has the first value of each.

    `pairs` has all names and values, in the order of the text.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, JsonValue]]) -> None:
        super().__init__()
        self.pairs = pairs
        for name, value in pairs:
            self.setdefault(name, value)


def members_of(value: dict[str, JsonValue]) -> Collection[tuple[str, JsonValue]]:
    """Return all names and values of an object, including repeated ones."""
    return value.pairs if isinstance(value, Members) else value.items()


def parse_json(text: bytes, limits: ParseLimits = NO_LIMITS) -> JsonValue:
    """Parse the first complete JSON value of `text`; ignore what follows it.

    Beyond JSON, `NaN`, `Infinity` and `Inf` (with or without a sign) and a byte order mark are accepted. Integers that
    fit 64 bits, signed or unsigned, become int, all other numbers float. Bytes that are not valid UTF-8 become
    surrogate escapes. The first of repeated names counts; `members_of` returns all.

    A text with many values is parsed slice by slice, so that other threads are not blocked for long. It must be an
    object, as every message is: otherwise it is not parsed, and the result is an empty list. The functions of `limits`
    may raise their own errors.
    """
    if not text:
        raise invalid_argument("JSON Parse error: The document is empty")
    check = None
    if len(text) > _SHORT_BYTES:
        content = survey(text)
        limits.prepare(content)
        if content.is_large:
            check = limits.check
    start = len(_BOM) if text.startswith(_BOM) else 0
    if check and not _OBJECT.match(text, start):
        return []
    try:
        value = _parse(text, start, _Decoder(number_mode=_NUMBERS), check)
    except UnicodeDecodeError:
        value = _parse(_with_private_characters(text), start, _PrivateDecoder(number_mode=_NUMBERS), limits.check)
    if check:
        limits.parsed(value)
    return value


def discard(value: JsonValue) -> None:
    """Empty a large value step by step. Freeing it at once would block all threads."""
    pending: list[Any] = [value]
    while pending:
        container = pending[-1]
        if isinstance(container, dict):
            part = [container.popitem() for _ in range(min(len(container), _STEP))]
        else:
            part = container[-_STEP:]
            del container[-_STEP:]
        if not container:
            pending.pop()
            if isinstance(container, Members):
                pending.append(container.pairs)
        for element in part:
            inner = element[1] if isinstance(element, tuple) else element
            if isinstance(inner, (dict, list)):
                pending.append(inner)


def _make_object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    if len(pairs) <= _STEP:
        members = dict(pairs)
        return members if len(members) == len(pairs) else Members(pairs)
    members = {}
    for start in range(0, len(pairs), _STEP):
        members.update(pairs[start : start + _STEP])
    if len(members) < len(pairs):
        return Members(pairs)
    while pairs:
        del pairs[-_STEP:]
    return members


class _Decoder(rapidjson.Decoder):
    """Reads each object as a list of pairs first, because names may repeat."""

    start_object: Callable[[], list[Any]] = list
    end_object = staticmethod(_make_object)

    def source(self, text: bytes) -> bytes:
        """Return the bytes of the request that a parsed text stands for."""
        return text


class _PrivateDecoder(_Decoder):
    """Reads a text from `_with_private_characters`. If it has such characters itself, they become bytes too."""

    def string(self, value: str) -> str:
        steps = range(0, len(value), _STEP)
        return "".join(value[start : start + _STEP].translate(_ESCAPES) for start in steps)

    def end_object(self, pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        for index, (name, value) in enumerate(pairs):
            pairs[index] = self.string(name), value
        return _make_object(pairs)

    def source(self, text: bytes) -> bytes:
        return self.string(text.decode(errors="ignore")).encode(errors="surrogateescape")


def _with_private_characters(text: bytes) -> bytes:
    """Replace bytes that are not UTF-8 by private characters, because RapidJSON's strings must be UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pieces = []
    for start in range(0, len(text), _SLICE_BYTES):
        end = start + _SLICE_BYTES
        piece = decoder.decode(text[start:end], final=end >= len(text)).encode(errors="surrogatepass")
        pieces.append(piece.replace(b"\xed\xb2", b"\xef\x9e").replace(b"\xed\xb3", b"\xef\x9f"))
    return b"".join(pieces)


class _Slices:
    """A stream of the slices of a text."""

    def __init__(self, text: bytes, check: Callable[[], None]) -> None:
        self._text = text
        self._check = check
        self._position = 0

    def read(self, size: int) -> bytes:
        self._check()
        start, self._position = self._position, self._position + size
        return self._text[start : self._position]


def _parse(text: bytes, start: int, decoder: _Decoder, check: Callable[[], None] | None) -> JsonValue:
    try:
        return _read(text[start:], decoder, check)
    except RecursionError:
        limit = sys.getrecursionlimit()
        raise invalid_argument(f"the request nests more than {limit} JSON arrays and objects") from None
    except rapidjson.JSONDecodeError as error:
        match = _ERROR.fullmatch(str(error))
        assert match
        end, reason = start + int(match[1]), match[2]
    if reason == _FOLLOWED:
        return _parse(text[:end], start, decoder, check)
    if reason == _INVALID and text[end : end + 1] in _NO_VALUE and not text[start:end].strip(_SPACE):
        reason = "The document is empty."
    if reason == _INVALID_ENCODING:
        reason = "Invalid escape character in string."
    raise invalid_argument(f"JSON Parse error: {reason} at offset: {len(decoder.source(text[:end]))}")


def _read(text: bytes, decoder: _Decoder, check: Callable[[], None] | None) -> JsonValue:
    """Read a text, slice by slice if there is a `check`."""
    value: JsonValue
    if not check:
        value = decoder(text)
        return value
    outermost: list[Any] = []

    def start_object() -> list[Any]:
        pairs: list[Any] = []
        if not outermost:
            outermost.append(pairs)
        return pairs

    decoder.start_object = start_object
    try:
        value = decoder(cast("IO[bytes]", _Slices(text, check)), chunk_size=_SLICE_BYTES)
    except Exception:
        discard(outermost)
        raise
    return value
