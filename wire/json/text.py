"""Writes short texts of JSON values for error messages, as tensorflow_model_server's RapidJSON does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal

from savedmodel_bakery.wire.json.encode import new_line, quote
from savedmodel_bakery.wire.json.parser import JsonValue, members_of
from savedmodel_bakery.wire.status import cut

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
