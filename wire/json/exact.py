"""An exact JSON parser: the values, errors and byte offsets of RapidJSON as tensorflow_model_server configures it.

It is slow, so `parse_json` uses it only for texts that the standard library may parse differently. It does not recurse,
so only memory limits the depth of a document. It knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Any, TypeAlias

from savedmodel_bakery.wire.json.limits import NO_LIMITS, ParseLimits
from savedmodel_bakery.wire.json.tokens import SPACE, match_end, parse_error, read_scalar, read_string

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


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


def discard(containers: list[list[JsonValue] | Members]) -> None:
    """Empty the containers of a large value step by step. Freeing it at once would block all threads.

    Args:
        containers: those that `ParseLimits.opened` was called with; becomes empty.
    """
    while containers:
        container = containers.pop()  # the inner ones first
        elements: Any = container
        if isinstance(container, Members):
            container.clear()
            elements = container.pairs
        while elements:
            elements.pop()


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
_CHECK_INTERVAL = 2**12  # tokens, which take a few milliseconds
_VALUE_FOLLOWS = frozenset({_State.START, _State.ARRAY_OPEN, _State.COMMA_IN_ARRAY, _State.COLON})
_NAME_FOLLOWS = frozenset({_State.OBJECT_OPEN, _State.COMMA_IN_OBJECT})
_AFTER_RUN = {
    _State.OBJECT_OPEN: _State.MEMBER,
    _State.COMMA_IN_OBJECT: _State.MEMBER,
    _State.ARRAY_OPEN: _State.ELEMENT,
    _State.COMMA_IN_ARRAY: _State.ELEMENT,
}
_PUNCTUATION = {
    (_State.NAME, b":"): _State.COLON,
    (_State.MEMBER, b","): _State.COMMA_IN_OBJECT,
    (_State.ELEMENT, b","): _State.COMMA_IN_ARRAY,
}
_CLOSES = frozenset(
    {(_State.OBJECT_OPEN, b"}"), (_State.MEMBER, b"}"), (_State.ARRAY_OPEN, b"]"), (_State.ELEMENT, b"]")}
)

ReadRun: TypeAlias = "Callable[[int, list[JsonValue] | Members], int]"
"""Adds elements or members to a list or object, from an offset on; returns where the last one ends."""


def parse_exact(
    text: bytes, start: int = 0, limits: ParseLimits = NO_LIMITS, read_run: ReadRun | None = None
) -> JsonValue:
    """Parse the first complete value of `text` at or after byte `start`; ignore what follows it.

    Bytes that are not valid UTF-8 become surrogate escapes. Objects are `Members`.

    Args:
        text: JSON.
        start: byte offset.
        limits: of the parse.
        read_run: is offered each place where an element or a member may begin. If it reads nothing, it returns the
            offset that it was given.

    Raises:
        StatusError: INVALID_ARGUMENT with RapidJSON's reason and the byte offset; RESOURCE_EXHAUSTED if it is nested
            too deep; or an error of `limits.check`.
    """
    root: JsonValue = None
    name = ""
    parents: list[list[JsonValue] | Members] = []
    state, position = _State.START, start
    tokens = 0
    while True:
        tokens += 1
        if not tokens % _CHECK_INTERVAL:
            limits.check()
        if read_run and state in _AFTER_RUN:
            end = read_run(position, parents[-1])
            if end > position:
                state, position = _AFTER_RUN[state], end
        position = match_end(SPACE, text, position)
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
            name, position = read_string(text, position)
            state = _State.NAME
        elif state in _VALUE_FOLLOWS and token not in (b"", b"\0", b"]", b"}", b",", b":"):
            container: list[JsonValue] | Members | None = [] if token == b"[" else Members() if token == b"{" else None
            value: JsonValue = container
            if container is None:
                value, position = read_scalar(text, position, token)
            if parents:
                _attach(parents[-1], name, value)
            else:
                root = value
            if container is not None:
                limits.check_nesting(len(parents) + 1)
                limits.opened(container)
                parents.append(container)
                position += 1
                state = _State.ARRAY_OPEN if token == b"[" else _State.OBJECT_OPEN
            elif not parents:
                return root
            else:
                state = _State.ELEMENT if isinstance(parents[-1], list) else _State.MEMBER
        else:
            raise parse_error(_ERRORS[state], position)


def _attach(parent: list[JsonValue] | Members, name: str, value: JsonValue) -> None:
    if isinstance(parent, list):
        parent.append(value)
    else:
        parent.add(name, value)
