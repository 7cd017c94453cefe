"""JSON text to Python values and back to short texts, as tensorflow_model_server's RapidJSON does both.

It knows JSON only: what a document means is said by `wire.predict_json` and `wire.example_json`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from savedmodel_bakery.wire.json.exact import MAX_FINITE, Members, has_large_exponent, parse_exact
from savedmodel_bakery.wire.json.exact import JsonValue as JsonValue
from savedmodel_bakery.wire.json.exact import members_of as members_of
from savedmodel_bakery.wire.json.grisu import grisu_digits
from savedmodel_bakery.wire.status import invalid_argument

SHOWN_BYTES = 256

_BOM = b"\xef\xbb\xbf"
_JSON_SPACE = " \t\n\r"

# Folds a text to what tells long integers and large exponents: every digit a 0, every E an e.
_FOLD = bytes.maketrans(b"123456789E", b"000000000e")
_SURROGATE = re.compile(rb"\\u[dD]")
_ESCAPE_TOKENS = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F])|\\.", re.DOTALL
)
_LONG_INTEGER = b"0" * 19
_LARGE_EXPONENT = re.compile(rb"e\+?000")
# The fewest digits that make a number infinite with an exponent of two digits only, and some to spare.
_HUGE_INTEGER = b"0" * 200
_FEW_STRINGS = 256
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def parse_json(text: bytes) -> JsonValue:
    """Read the first complete JSON value of `text`; what follows it is not looked at.

    Beyond JSON, `NaN`, `Infinity` and `Inf` (signed or not) and a byte order mark are read. Integer literals
    that fit 64 bits, signed or unsigned, become int, all other numbers float. Bytes that are no UTF-8 stay in
    strings as surrogate escapes. Of repeated names the first counts, and `members_of` gives all. Depth is bounded by
    memory alone.

    Raises:
        StatusError: INVALID_ARGUMENT `JSON Parse error: …` with reason and byte offset.
    """
    if not text:
        raise invalid_argument("JSON Parse error: The document is empty")
    start = len(_BOM) if text.startswith(_BOM) else 0
    if not _has_lone_surrogate(text):
        try:
            value = _parse_fast(text, start)
        except (ValueError, RecursionError):
            pass
        else:
            # At the top level the library takes the 1 of `1.` for a whole value.
            if isinstance(value, (dict, list)):
                return value
    return parse_exact(text, start)


def _parse_fast(text: bytes, start: int) -> JsonValue:
    decoded = text.decode("utf-8", "surrogateescape")
    first = 1 if start else 0
    while decoded[first : first + 1] in _JSON_SPACE and first < len(decoded):
        first += 1
    folded = _without_strings(text).translate(_FOLD)
    has_long = _LONG_INTEGER in folded
    decoder = _BOUNDED if has_long else _PLAIN
    if (has_long and _HUGE_INTEGER in folded) or _LARGE_EXPONENT.search(folded):
        decoder = _BOUNDED_AND_FINITE
    value: JsonValue = decoder.raw_decode(decoded, first)[0]
    return value


def _without_strings(text: bytes) -> bytes:
    """A text without its first strings, which are most of what photos in base64 take; all of it if it has escapes."""
    if b"\\" in text:
        return text
    pieces, at = [], 0
    for _ in range(_FEW_STRINGS):
        opening = text.find(b'"', at)
        closing = text.find(b'"', opening + 1)
        if opening < 0 or closing < 0:
            break
        pieces.append(text[at:opening])
        at = closing + 1
    return b'"'.join([*pieces, text[at:]])


def _has_lone_surrogate(text: bytes) -> bool:
    """Whether an escape stands for half a character; the library would let it pass."""
    if b"\\" not in text or not _SURROGATE.search(text):
        return False
    return any(match.group(1) for match in _ESCAPE_TOKENS.finditer(text))


def _object_of(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) == len(pairs):
        return result
    members = Members()
    for name, value in pairs:
        members.add(name, value)
    return members


def _bounded_int(literal: str) -> int | float:
    # No 64-bit integer has more than 20 characters; int() refuses thousands of digits.
    if len(literal) <= 20 and -(2**63) <= (number := int(literal)) < 2**64:
        return number
    return _finite_float(literal)


def _finite_float(literal: str) -> float:
    number = float(literal)
    if abs(number) > MAX_FINITE or (not number and has_large_exponent(literal)):
        raise ValueError("number may be too big; the exact reader says where")
    return number


# A Python call for each number costs as much as reading it, so only texts that need the checks get them.
_PLAIN = json.JSONDecoder(object_pairs_hook=_object_of)
_BOUNDED = json.JSONDecoder(object_pairs_hook=_object_of, parse_int=_bounded_int)
_BOUNDED_AND_FINITE = json.JSONDecoder(object_pairs_hook=_object_of, parse_int=_bounded_int, parse_float=_finite_float)


def type_name(value: JsonValue) -> str:
    """Name the JSON type of a value as error texts do: True and False are types of their own."""
    if value is None or isinstance(value, bool):
        return {None: "Null", True: "True", False: "False"}[value]
    if isinstance(value, (int, float)):
        return "Number"
    if isinstance(value, str):
        return "String"
    return "Array" if isinstance(value, list) else "Object"


def quote(text: str) -> str:
    r"""Write a JSON string: `"`, `\` and control characters are escaped, all else is left as it is."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04X}"


def show_value(value: JsonValue) -> str:
    """Print a value for an error text: four spaces an indent, lists on one line, cut after 256 bytes.

    Only as much of the value is walked as is shown, however large or deep it is. The cut falls between
    characters.
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


def _cut(raw: bytes, size: int) -> str:
    while size and raw[size] & 0xC0 == 0x80:
        size -= 1
    return raw[:size].decode("utf-8", "surrogateescape")


def _pieces(value: JsonValue) -> Iterator[str]:
    """Yield the text of a value piece by piece, from a stack of its own."""
    if not isinstance(value, (dict, list)):
        yield _scalar_text(value)
        return
    open_: list[Iterator[tuple[str, JsonValue]]] = []
    closings: list[str] = []

    def enter(container: dict[str, JsonValue] | list[JsonValue]) -> str:
        level = len(open_)
        open_.append(_members(container, level + 1))
        if isinstance(container, list):
            closings.append("]")
            return "["
        closings.append("\n" + "    " * level + "}" if container else "}")
        return "{"

    yield enter(value)
    while open_:
        prefix, item = next(open_[-1], (None, None))
        if prefix is None:
            open_.pop()
            yield closings.pop()
        else:
            yield prefix
            yield enter(item) if isinstance(item, (dict, list)) else _scalar_text(item)


def _members(container: dict[str, JsonValue] | list[JsonValue], level: int) -> Iterator[tuple[str, JsonValue]]:
    """Yield each element with the text that stands before it."""
    separator = ""
    if isinstance(container, list):
        for item in container:
            yield separator, item
            separator = ", "
    else:
        for name, item in members_of(container):
            yield f"{separator}\n{'    ' * level}{quote(name[:SHOWN_BYTES])}: ", item
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
    """Print a number in RapidJSON's layout: plain up to 21 digits, else `1.5e22`."""
    if number != number:
        return "NaN"
    if abs(number) > MAX_FINITE:
        return "Infinity" if number > 0 else "-Infinity"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if not number:
        return sign + "0.0"
    digits, exponent = grisu_digits(abs(number))
    point = len(digits) + exponent
    if 0 < point <= 21:
        plain = digits.ljust(point, "0")
        text = f"{plain[:point]}.{plain[point:] or '0'}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{digits}"
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{point - 1}"
    return sign + text
