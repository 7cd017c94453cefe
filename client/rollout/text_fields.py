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
class Field:
    """A field in a text, or an element of a field that is written as a list. All positions are offsets in the text."""

    name: str
    start: int  # of the name, or of an element in a list
    value: int  # the first character of the value
    end: int  # after the value
    separator: int | None  # the comma or semicolon that follows
    before: int | None  # the comma before an element in a list
    is_listed: bool
    fields: Sequence[Field]  # of a message

    def named(self, name: str) -> list[Field]:
        """Return the fields with this name: the values of a repeated field, in the order of the text."""
        return [field for field in self.fields if field.name == name]


class _Token(NamedTuple):
    text: str
    start: int


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
        fields: list[Field] = []
        while self._next != closing:
            name = self._take()
            if name.text == "[":  # the name of an extension, or the type of an Any
                while self._take().text != "]":
                    pass
            if self._next == ":":
                self._take()
            if self._next == "[":
                fields += self._list(name.text)
            else:
                fields.append(self._field(name.text, name.start))
        return fields

    def _list(self, name: str) -> Iterator[Field]:
        self._take()
        before = None
        while self._next != "]":
            element = self._field(name, None, before)
            before = element.separator
            yield element
        self._take()
        self._separator()

    def _field(self, name: str, start: int | None, before: int | None = None) -> Field:
        """Read a value and its separator; `start` is None in a list."""
        value = self._take()
        fields: Sequence[Field] = ()
        if value.text in _CLOSING:
            fields = self.fields(_CLOSING[value.text])
            self._take()
        elif value.text.startswith(_QUOTES):
            while self._next.startswith(_QUOTES):
                self._take()
        elif value.text == "-":
            self._take()
        last = self._tokens[self._place - 1]
        return Field(
            name=name,
            start=value.start if start is None else start,
            value=value.start,
            end=last.start + len(last.text),
            separator=self._separator(),
            before=before,
            is_listed=start is None,
            fields=fields,
        )

    def _separator(self) -> int | None:
        return self._take().start if self._next in _SEPARATORS else None

    @property
    def _next(self) -> str:
        return self._tokens[self._place].text

    def _take(self) -> _Token:
        self._place += 1
        return self._tokens[self._place - 1]
