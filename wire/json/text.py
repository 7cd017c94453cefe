"""Writes short texts of JSON values for error messages, as tensorflow_model_server's RapidJSON does.

Knows nothing of tensors or requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal

from savedmodel_bakery.wire.json.encode import quote
from savedmodel_bakery.wire.json.parser import JsonValue, members_of

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
    if math.isinf(number):
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
