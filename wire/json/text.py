"""Parses JSON, and writes short texts of JSON values for error messages, as tensorflow_model_server's RapidJSON does.

Knows nothing of tensors or requests.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from decimal import Decimal

from savedmodel_bakery.wire.json.encode import quote
from savedmodel_bakery.wire.json.exact import JsonValue, Members, members_of, parse_exact
from savedmodel_bakery.wire.json.limits import NO_LIMITS, ParseLimits, check_nesting, survey
from savedmodel_bakery.wire.json.runs import RunFinder
from savedmodel_bakery.wire.json.tokens import MAX_FINITE, has_large_exponent, match_end
from savedmodel_bakery.wire.status import invalid_argument

SHOWN_BYTES = 259

_BOM = b"\xef\xbb\xbf"
_JSON_SPACE = re.compile(r"[ \t\n\r]*")

# Makes every digit a 0 and every E an e, so that long integers and large exponents are easy to find.
_FOLD = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(rb"\\u[dD]")
_ESCAPE_TOKENS = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F])|\\.", re.DOTALL
)
_LONG_INTEGER = b"0" * 19
_LARGE_EXPONENT = re.compile(rb"e\+?000")
# With an exponent of two digits, a number needs more digits than this to become infinite.
_HUGE_INTEGER = b"0" * 200
_FEW_STRINGS = 256
_SHORT_BYTES = 1024  # not worth a survey: parsing takes 100 kB at most


def parse_json(text: bytes, limits: ParseLimits = NO_LIMITS) -> JsonValue:
    """Parse the first complete JSON value of `text`; ignore what follows it.

    Beyond JSON, `NaN`, `Infinity` and `Inf` (with or without a sign) and a byte order mark are accepted. Integers that
    fit 64 bits, signed or unsigned, become int, all other numbers float. Bytes that are not valid UTF-8 become
    surrogate escapes. The first of repeated names counts; `members_of` returns all. Only memory and `limits` limit the
    depth. A text with many values is parsed slice by slice, so that other threads are not blocked for long.

    Raises:
        StatusError: INVALID_ARGUMENT `JSON Parse error: …` with reason and byte offset; RESOURCE_EXHAUSTED if it is
            nested too deep; or an error of the functions of `limits`.
    """
    if not text:
        raise invalid_argument("JSON Parse error: The document is empty")
    start = len(_BOM) if text.startswith(_BOM) else 0
    if len(text) > min(_SHORT_BYTES, limits.nesting):
        content = survey(text)
        if content.containers > limits.nesting:
            check_nesting(text, limits)
        limits.prepare(content)
        if content.is_large:
            return parse_exact(text, start, limits, _RunReader(text).read)
    if not _has_lone_surrogate(text):
        try:
            value = _parse_fast(text, start)
        except (ValueError, RecursionError):
            pass
        else:
            # At the top level the standard library parses `1.` as 1.
            if isinstance(value, (dict, list)):
                return value
    return parse_exact(text, start, limits)


class _RunReader:
    """Parses runs of elements or members by the standard library."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._finder = RunFinder(text)

    def read(self, position: int, parent: list[JsonValue] | Members) -> int:
        """Read a run into its list or object; see `exact.ReadRun`."""
        end = self._finder.find(position)
        if end == position:
            return position
        opening, closing = (b"[", b"]") if isinstance(parent, list) else (b"{", b"}")
        run = b"".join((opening, self._text[position:end], closing))
        try:
            value = None if _has_lone_surrogate(run) else _parse_fast(run, 0, to_end=True)
        except (ValueError, RecursionError):
            value = None
        if not value:
            self._finder.pause(end)
            return position
        if isinstance(parent, list):
            assert isinstance(value, list)
            parent.extend(value)
        else:
            assert isinstance(value, dict)
            for name, member in members_of(value):
                parent.add(name, member)
        return end


def _parse_fast(text: bytes, start: int, *, to_end: bool = False) -> JsonValue:
    """Parse a value by the standard library; with `to_end`, nothing may follow it."""
    decoded = text.decode("utf-8", "surrogateescape")
    first = 1 if start else 0
    first = match_end(_JSON_SPACE, decoded, first)
    folded = _without_strings(text).translate(_FOLD)
    has_long = _LONG_INTEGER in folded
    decoder = _BOUNDED if has_long else _PLAIN
    if (has_long and _HUGE_INTEGER in folded) or _LARGE_EXPONENT.search(folded):
        decoder = _BOUNDED_AND_FINITE
    value: JsonValue
    value, end = decoder.raw_decode(decoded, first)
    if to_end and end < len(decoded):
        raise ValueError("something follows the value")
    return value


def _without_strings(text: bytes) -> bytes:
    """Remove the first strings from a text, as photos in base64 are long; keep all of it if it has escapes."""
    if b"\\" in text:
        return text
    pieces, start = [], 0
    for _ in range(_FEW_STRINGS):
        opening = text.find(b'"', start)
        closing = text.find(b'"', opening + 1)
        if opening < 0 or closing < 0:
            break
        pieces.append(text[start:opening])
        start = closing + 1
    return b'"'.join([*pieces, text[start:]])


def _has_lone_surrogate(text: bytes) -> bool:
    """Return whether an escape is half of a surrogate pair, which the standard library accepts."""
    if b"\\" not in text or not _SURROGATE.search(text):
        return False
    return any(match.group(1) for match in _ESCAPE_TOKENS.finditer(text))


def _make_object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    members = Members()
    for name, value in pairs:
        members.add(name, value)
    return members


def _bounded_int(literal: str) -> int | float:
    # A 64-bit integer has at most 20 characters, and int() rejects thousands of digits.
    if len(literal) <= 20 and -(2**63) <= (number := int(literal)) < 2**64:
        return number
    return _finite_float(literal)


def _finite_float(literal: str) -> float:
    number = float(literal)
    if abs(number) > MAX_FINITE or (not number and has_large_exponent(literal)):
        raise ValueError("the number may be too big; parse_exact finds the offset")
    return number


# A Python call per number takes as long as parsing it, so numbers are checked only in texts that need it.
_PLAIN = json.JSONDecoder(object_pairs_hook=_make_object)
_BOUNDED = json.JSONDecoder(object_pairs_hook=_make_object, parse_int=_bounded_int)
_BOUNDED_AND_FINITE = json.JSONDecoder(
    object_pairs_hook=_make_object, parse_int=_bounded_int, parse_float=_finite_float
)


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
            pieces.append(_cut(raw, room))
            break
        pieces.append(piece)
        room -= len(raw)
    return "".join(pieces)


def shown_name(name: str) -> str:
    """Return a name for an error message, cut after 259 characters."""
    return name[:SHOWN_BYTES]


def _cut(raw: bytes, size: int) -> str:
    while size and raw[size] & 0xC0 == 0x80:
        size -= 1
    return raw[:size].decode("utf-8", "surrogateescape")


def _pieces(value: JsonValue) -> Iterator[str]:
    """Yield the text of a value piece by piece, without recursion."""
    if not isinstance(value, (dict, list)):
        yield _scalar_text(value)
        return
    stack: list[Iterator[tuple[str, JsonValue]]] = []
    closings: list[str] = []

    def enter(container: dict[str, JsonValue] | list[JsonValue]) -> str:
        level = len(stack)
        stack.append(_members(container, level + 1))
        if isinstance(container, list):
            closings.append("]")
            return "["
        closings.append("\n" + "    " * level + "}" if container else "}")
        return "{"

    yield enter(value)
    while stack:
        prefix, item = next(stack[-1], (None, None))
        if prefix is None:
            stack.pop()
            yield closings.pop()
        else:
            yield prefix
            yield enter(item) if isinstance(item, (dict, list)) else _scalar_text(item)


def _members(container: dict[str, JsonValue] | list[JsonValue], level: int) -> Iterator[tuple[str, JsonValue]]:
    """Yield each element with the text before it."""
    separator = ""
    if isinstance(container, list):
        for item in container:
            yield separator, item
            separator = ", "
    else:
        for name, item in members_of(container):
            yield f"{separator}\n{'    ' * level}{quote(shown_name(name))}: ", item
            separator = ","


def _scalar_text(value: JsonValue) -> str:
    if isinstance(value, str):
        return quote(value[:SHOWN_BYTES])
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, bool) or value is None:
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _float_text(number: float) -> str:
    """Write a number in RapidJSON's layout: `150.0` up to 21 digits, otherwise `1.5e22`."""
    if number != number:
        return "NaN"
    if abs(number) > MAX_FINITE:
        return "Infinity" if number > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if not number:
        return sign + "0.0"
    shortest = Decimal(repr(abs(number))).normalize().as_tuple()
    digits = "".join(map(str, shortest.digits))
    point = len(digits) + int(shortest.exponent)
    if 0 < point <= 21:
        plain = digits.ljust(point, "0")
        text = f"{plain[:point]}.{plain[point:] or '0'}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1}"
    return sign + text
