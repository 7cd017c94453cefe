"""An exact JSON parser: the values, errors and byte offsets of RapidJSON as tensorflow_model_server configures it.

It is slow, so `parse_json` uses it only for texts that the standard library may parse differently. It does not recurse,
so only memory limits the depth of a document. It knows nothing of tensors.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum, auto
from typing import TypeAlias

from savedmodel_bakery.wire.status import StatusError, invalid_argument

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

MAX_FINITE = 1.7976931348623157e308
_MAX_EXPONENT = 308


class Members(dict[str, JsonValue]):
    """A JSON object that may repeat names; as a dict it has the first value of each.

    Attributes:
        pairs: all names and values, in the order of the text.
    """

    __slots__ = ("pairs",)

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[str, JsonValue]] = []

    def add(self, name: str, value: JsonValue) -> None:
        """Append a member."""
        self.pairs.append((name, value))
        self.setdefault(name, value)


def members_of(value: dict[str, JsonValue]) -> Collection[tuple[str, JsonValue]]:
    """Return all names and values of an object, including repeated ones."""
    return value.pairs if isinstance(value, Members) else value.items()


class _State(Enum):
    """What the parser has read last."""

    START = auto()
    OBJECT_OPEN = auto()
    NAME = auto()
    COLON = auto()
    MEMBER = auto()
    COMMA_IN_OBJECT = auto()
    ARRAY_OPEN = auto()
    ELEMENT = auto()
    COMMA_IN_ARRAY = auto()


# The error if the next token is not one that may follow.
_ERRORS = {
    _State.START: "The document is empty.",
    _State.OBJECT_OPEN: "Missing a name for object member.",
    _State.NAME: "Missing a colon after a name of object member.",
    _State.COLON: "Invalid value.",
    _State.MEMBER: "Missing a comma or '}' after an object member.",
    _State.COMMA_IN_OBJECT: "Missing a name for object member.",
    _State.ARRAY_OPEN: "Invalid value.",
    _State.ELEMENT: "Missing a comma or ']' after an array element.",
    _State.COMMA_IN_ARRAY: "Invalid value.",
}
_VALUE_FOLLOWS = frozenset({_State.START, _State.ARRAY_OPEN, _State.COMMA_IN_ARRAY, _State.COLON})
_NAME_FOLLOWS = frozenset({_State.OBJECT_OPEN, _State.COMMA_IN_OBJECT})
_PUNCTUATION = {
    (_State.NAME, b":"): _State.COLON,
    (_State.MEMBER, b","): _State.COMMA_IN_OBJECT,
    (_State.ELEMENT, b","): _State.COMMA_IN_ARRAY,
}
_CLOSES = frozenset(
    {(_State.OBJECT_OPEN, b"}"), (_State.MEMBER, b"}"), (_State.ARRAY_OPEN, b"]"), (_State.ELEMENT, b"]")}
)

_SPACE = re.compile(rb"[ \t\n\r]*")
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]*')
_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_DIGITS = re.compile(rb"[0-9]+")
_HEX4 = re.compile(rb"[0-9a-fA-F]{4}")
_ESCAPES = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}
_WORDS: dict[bytes, tuple[bytes, JsonValue]] = {
    b"n": (b"null", None),
    b"t": (b"true", True),
    b"f": (b"false", False),
}


def parse_exact(text: bytes, start: int = 0) -> JsonValue:
    """Parse the first complete value of `text` at or after byte `start`; ignore what follows it.

    Bytes that are not valid UTF-8 become surrogate escapes. Objects are `Members`.

    Raises:
        StatusError: INVALID_ARGUMENT with RapidJSON's reason and the byte offset.
    """
    root: JsonValue = None
    name = ""
    parents: list[list[JsonValue] | Members] = []
    state, position = _State.START, start
    while True:
        position = _end(_SPACE, text, position)
        token = text[position : position + 1]
        if (state, token) in _CLOSES:
            parents.pop()
            position += 1
            if not parents:
                return root
            state = _State.ELEMENT if isinstance(parents[-1], list) else _State.MEMBER
        elif (state, token) in _PUNCTUATION:
            state = _PUNCTUATION[state, token]
            position += 1
        elif state in _NAME_FOLLOWS and token == b'"':
            name, position = _read_string(text, position)
            state = _State.NAME
        elif state in _VALUE_FOLLOWS and token not in (b"", b"\0", b"]", b"}", b",", b":"):
            value, position = _read_value(text, position, token)
            if parents:
                _attach(parents[-1], name, value)
            else:
                root = value
            if token in (b"[", b"{"):
                assert isinstance(value, (list, Members))
                parents.append(value)
                state = _State.ARRAY_OPEN if token == b"[" else _State.OBJECT_OPEN
            elif not parents:
                return root
            else:
                state = _State.ELEMENT if isinstance(parents[-1], list) else _State.MEMBER
        else:
            raise _error(_ERRORS[state], position)


def _attach(parent: list[JsonValue] | Members, name: str, value: JsonValue) -> None:
    if isinstance(parent, list):
        parent.append(value)
    else:
        parent.add(name, value)


def _error(reason: str, offset: int) -> StatusError:
    return invalid_argument(f"JSON Parse error: {reason} at offset: {offset}")


def _end(pattern: re.Pattern[bytes], text: bytes, position: int) -> int:
    """Return where the match of a pattern ends that also matches the empty string."""
    match = pattern.match(text, position)
    return match.end() if match else position


def _read_value(text: bytes, position: int, token: bytes) -> tuple[JsonValue, int]:
    """Read a scalar, or the opening bracket of a list or object."""
    if token == b"[":
        return [], position + 1
    if token == b"{":
        return Members(), position + 1
    if token == b'"':
        return _read_string(text, position)
    if token in _WORDS:
        word, value = _WORDS[token]
        return value, _expect(text, position, word)
    return _read_number(text, position)


def _expect(text: bytes, position: int, word: bytes) -> int:
    for expected in word:
        if text[position : position + 1] != bytes((expected,)):
            raise _error("Invalid value.", position)
        position += 1
    return position


def _read_number(text: bytes, start: int) -> tuple[JsonValue, int]:
    match = _INTEGER.match(text, start)
    if not match:
        return _read_non_finite(text, start)
    end = match.end()
    is_integer = True
    if text[end : end + 1] == b".":
        is_integer = False
        end = _read_digits(text, end + 1, "Miss fraction part in number.")
    if text[end : end + 1] in (b"e", b"E"):
        is_integer = False
        signed = text[end + 1 : end + 2] in (b"+", b"-")
        end = _read_digits(text, end + 1 + signed, "Miss exponent in number.")
    literal = text[start:end]
    # A 64-bit integer has at most 20 characters, and int() rejects thousands of digits.
    if is_integer and len(literal) <= 20 and -(2**63) <= (number := int(literal)) < 2**64:
        return number, end
    decimal = float(literal)
    if abs(decimal) > MAX_FINITE or (not decimal and has_large_exponent(literal.decode())):
        raise _error("Number too big to be stored in double.", start)
    return decimal, end


def has_large_exponent(literal: str) -> bool:
    """Return whether RapidJSON rejects the exponent of a zero; each digit after the point allows one more."""
    mantissa, _, exponent = literal.lower().partition("e")
    digits = exponent.lstrip("+0")
    room = _MAX_EXPONENT + len(mantissa.partition(".")[2])
    return not digits.startswith("-") and (len(digits) > len(str(room)) or int(digits or "0") > room)


def _read_digits(text: bytes, position: int, missing: str) -> int:
    match = _DIGITS.match(text, position)
    if not match:
        raise _error(missing, position)
    return match.end()


def _read_non_finite(text: bytes, position: int) -> tuple[float, int]:
    """Read `NaN`, `Inf` or `Infinity`, with or without a sign."""
    sign = -1.0 if text[position : position + 1] == b"-" else 1.0
    position += sign < 0
    if text[position : position + 1] == b"N":
        return float("nan"), _expect(text, position, b"NaN")
    position = _expect(text, position, b"Inf")
    if text[position : position + 1] == b"i":
        position = _expect(text, position, b"inity")
    return sign * float("inf"), position


def _read_string(text: bytes, position: int) -> tuple[str, int]:
    """Read a string, from its opening quotation mark up to and including the closing one."""
    parts: list[bytes] = []
    position += 1
    while True:
        end = _end(_PLAIN, text, position)
        parts.append(text[position:end])
        stop = text[end : end + 1]
        if stop == b'"':
            return b"".join(parts).decode("utf-8", "surrogateescape"), end + 1
        if stop in (b"", b"\0"):
            raise _error("Missing a closing quotation mark in string.", end)
        if stop != b"\\":
            raise _error("Invalid escape character in string.", end)
        character, position = _read_escape(text, end)
        parts.append(character)


def _read_escape(text: bytes, start: int) -> tuple[bytes, int]:
    """Read the escape whose backslash is at `start`; errors have the offset of that backslash."""
    letter = text[start + 1 : start + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], start + 2
    if letter != b"u":
        raise _error("Invalid escape character in string.", start)
    unit, position = _read_hex4(text, start + 2, start)
    if not 0xD800 <= unit <= 0xDFFF:
        return chr(unit).encode(), position
    if unit > 0xDBFF or text[position : position + 2] != b"\\u":
        raise _error("The surrogate pair in string is invalid.", start)
    low, position = _read_hex4(text, position + 2, start)
    if not 0xDC00 <= low <= 0xDFFF:
        raise _error("The surrogate pair in string is invalid.", start)
    return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).encode(), position


def _read_hex4(text: bytes, position: int, escape_start: int) -> tuple[int, int]:
    match = _HEX4.match(text, position)
    if not match:
        raise _error("Incorrect hex digit after \\u escape in string.", escape_start)
    return int(match.group(), 16), match.end()
