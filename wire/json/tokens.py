"""Reads the strings, numbers and words of JSON as RapidJSON does. Knows no lists and objects."""

from __future__ import annotations

import re
from typing import AnyStr

from savedmodel_bakery.wire.status import StatusError, invalid_argument

Scalar = str | int | float | bool | None

MAX_FINITE = 1.7976931348623157e308
_MAX_EXPONENT = 308

SPACE = re.compile(rb"[ \t\n\r]*")
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
_WORDS: dict[bytes, tuple[bytes, Scalar]] = {
    b"n": (b"null", None),
    b"t": (b"true", True),
    b"f": (b"false", False),
}


def parse_error(reason: str, offset: int) -> StatusError:
    """Return the error of a text that is not JSON."""
    return invalid_argument(f"JSON Parse error: {reason} at offset: {offset}")


def match_end(pattern: re.Pattern[AnyStr], text: AnyStr, position: int) -> int:
    """Return where the match of a pattern ends that also matches the empty string."""
    match = pattern.match(text, position)
    return match.end() if match else position


def read_scalar(text: bytes, position: int, token: bytes) -> tuple[Scalar, int]:
    """Read a value that begins with the byte `token`, and return it with the offset of its end.

    Raises:
        StatusError: INVALID_ARGUMENT with RapidJSON's reason and the byte offset.
    """
    if token == b'"':
        return read_string(text, position)
    if token in _WORDS:
        word, value = _WORDS[token]
        return value, _expect(text, position, word)
    return _read_number(text, position)


def _expect(text: bytes, position: int, word: bytes) -> int:
    for expected in word:
        if text[position : position + 1] != bytes((expected,)):
            raise parse_error("Invalid value.", position)
        position += 1
    return position


def _read_number(text: bytes, start: int) -> tuple[Scalar, int]:
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
        raise parse_error("Number too big to be stored in double.", start)
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
        raise parse_error(missing, position)
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


def read_string(text: bytes, position: int) -> tuple[str, int]:
    """Read a string, from its opening quotation mark up to and including the closing one."""
    parts: list[bytes] = []
    position += 1
    while True:
        end = match_end(_PLAIN, text, position)
        parts.append(text[position:end])
        stop = text[end : end + 1]
        if stop == b'"':
            return b"".join(parts).decode("utf-8", "surrogateescape"), end + 1
        if stop in (b"", b"\0"):
            raise parse_error("Missing a closing quotation mark in string.", end)
        if stop != b"\\":
            raise parse_error("Invalid escape character in string.", end)
        character, position = _read_escape(text, end)
        parts.append(character)


def _read_escape(text: bytes, start: int) -> tuple[bytes, int]:
    """Read the escape whose backslash is at `start`; errors have the offset of that backslash."""
    letter = text[start + 1 : start + 2]
    if letter in _ESCAPES:
        return _ESCAPES[letter], start + 2
    if letter != b"u":
        raise parse_error("Invalid escape character in string.", start)
    unit, position = _read_hex4(text, start + 2, start)
    if not 0xD800 <= unit <= 0xDFFF:
        return chr(unit).encode(), position
    if unit > 0xDBFF or text[position : position + 2] != b"\\u":
        raise parse_error("The surrogate pair in string is invalid.", start)
    low, position = _read_hex4(text, position + 2, start)
    if not 0xDC00 <= low <= 0xDFFF:
        raise parse_error("The surrogate pair in string is invalid.", start)
    return chr(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)).encode(), position


def _read_hex4(text: bytes, position: int, escape_start: int) -> tuple[int, int]:
    match = _HEX4.match(text, position)
    if not match:
        raise parse_error("Incorrect hex digit after \\u escape in string.", escape_start)
    return int(match.group(), 16), match.end()
