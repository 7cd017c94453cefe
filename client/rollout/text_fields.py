"""Finds the fields of a text protobuf in its text, so that one can be changed and all else kept. Does no I/O.

Uses protobuf's own tokenizer, so comments, quotes and line breaks are those of the parser. The text must be valid:
parse it first. The syntax is that of protobuf.dev/reference/protobuf/textformat-spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from google.protobuf import text_format

_CLOSING = {"{": "}", "<": ">"}
_QUOTES = ("'", '"')
_SEPARATORS = (",", ";")


@dataclass(frozen=True)
class Value:
    """A value in a text. All positions are offsets in it.

    Attributes:
        start: its first character.
        end: after its last character.
        separator: of the comma that follows it in a list; None if none does.
        fields: the fields of a message; empty for a scalar.
    """

    start: int
    end: int
    separator: int | None
    fields: Sequence[Field] = ()


@dataclass(frozen=True)
class Field:
    """A field in a text.

    Attributes:
        name: its name.
        start: of the name.
        end: after the value.
        separator: of the comma or semicolon that follows it; None if none does.
        values: its value, or the elements of a list.
        is_list: whether it is written as a list, `[1, 2]`.
    """

    name: str
    start: int
    end: int
    separator: int | None
    values: Sequence[Value]
    is_list: bool


class _Token(NamedTuple):
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def find_fields(text: str) -> Sequence[Field]:
    """Return the fields of a text protobuf, in their order."""
    return _Reader(_tokens(text)).fields("")


def _tokens(text: str) -> Iterator[_Token]:
    lines = text.split("\n")  # as text_format.Parse does
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    tokenizer: Any = text_format.Tokenizer(lines)
    while not tokenizer.AtEnd():
        place = tokenizer.ParseError("")  # the tokenizer states positions, from 1, in its errors only
        yield _Token(tokenizer.token, starts[place.GetLine() - 1] + place.GetColumn() - 1)
        tokenizer.NextToken()


class _Reader:
    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = [*tokens, _Token("", -1)]
        self._place = 0

    def fields(self, closing: str) -> Sequence[Field]:
        """Read fields up to a token."""
        fields = []
        while self._next.text != closing:
            fields.append(self._field())
        return fields

    def _field(self) -> Field:
        name = self._take()
        if name.text == "[":  # the name of an extension, or the type of an Any
            while self._take().text != "]":
                pass
        if self._next.text == ":":
            self._take()
        is_list = self._next.text == "["
        values = self._list() if is_list else [self._value()]
        end = self._last.end
        return Field(name.text, name.start, end, self._separator(), values, is_list)

    def _list(self) -> Sequence[Value]:
        self._take()
        values = []
        while self._next.text != "]":
            values.append(self._value(is_element=True))
        self._take()
        return values

    def _value(self, *, is_element: bool = False) -> Value:
        first = self._take()
        fields: Sequence[Field] = ()
        if first.text in _CLOSING:
            fields = self.fields(_CLOSING[first.text])
            self._take()
        elif first.text.startswith(_QUOTES):
            while self._next.text.startswith(_QUOTES):
                self._take()
        elif first.text == "-":
            self._take()
        end = self._last.end
        return Value(first.start, end, self._separator() if is_element else None, fields)

    def _separator(self) -> int | None:
        return self._take().start if self._next.text in _SEPARATORS else None

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    @property
    def _last(self) -> _Token:
        return self._tokens[self._place - 1]

    def _take(self) -> _Token:
        self._place += 1
        return self._last
