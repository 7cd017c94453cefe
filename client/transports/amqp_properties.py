"""Properties of received messages: makes them decodable for aio-pika, and copies them unchanged. Does no I/O.

aio-pika can't decode every property that the broker accepts: text that is not UTF-8, a date after the year 9999, 2000
tables inside each other. `decodable` removes such properties, and adds two headers: why they were removed, and all
properties as they were published. A publisher can't set these headers: they are replaced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from pamqp import decode, encode
from pamqp.commands import Basic

MAX_NESTING = 32
MAX_VALUES = 1000
"""Tables and arrays inside each other in a header, and values in all headers. aiormq decodes tables recursively, and
takes a time that grows with the square of the number of values."""
MAX_BYTES = 100_000
"""Size of the properties. The broker refuses copies with more than 131,072 (its `frame_max`)."""

_MAX_ERRORS = 3
_RAW, _UNREADABLE = "x-raw", "x-unreadable"
_MARKS = {_RAW.encode(), _UNREADABLE.encode()}
_CHECKS: Mapping[str, Callable[[Any], object]] = {  # as aio-pika decodes
    "delivery_mode": lambda mode: aio_pika.DeliveryMode(mode or 1),
    "expiration": float,
}
_CONTENT_HEADER_BYTES = 12  # before the properties: class, weight, size of the body
_SIZES = {
    kind: size
    for kinds, size in ((b"V\0", 0), (b"tbB", 1), (b"su", 2), (b"Iif", 4), (b"D", 5), (b"lLdT", 8))
    for kind in kinds
}  # of values, by type (rabbitmq.com/amqp-0-9-1-errata)
_WITH_LENGTH = b"SxFA"  # types of values that begin with their length
_NAMES = {"message_type": "type"}  # of properties, where pamqp's differ from the specification's

_Fields = dict[str, bytes]
"""Encoded properties, by pamqp's names."""


def unreadable(message: AbstractIncomingMessage) -> str | None:
    """Return which properties of a received message can't be decoded, and why; None if all can be."""
    return cast("str | None", message.headers.get(_UNREADABLE))


class Copy(aio_pika.Message):
    """A persistent copy of a received message, with the properties that it was published with.

    Without those that the broker would not accept from another user or would act upon: `user_id`, CC and BCC.

    Args:
        message: as received over a connection of `Broker`.
        headers: to add.
        without_headers: prefixes of the names of the headers to leave out.
        without_expiration: whether the copy never expires.
    """

    def __init__(
        self,
        message: AbstractIncomingMessage,
        headers: Mapping[str, Any],
        *,
        without_headers: Sequence[str],
        without_expiration: bool,
    ) -> None:
        super().__init__(message.body)
        fields = _split(cast(bytes, message.headers[_RAW]))
        left_out = tuple(prefix.encode() for prefix in without_headers)
        kept = [
            _keyed(key, value)
            for key, value in _values(fields.get("headers", b"")[4:], keyed=True)
            if not key.startswith(left_out) and key not in (b"CC", b"BCC")
        ]
        fields["headers"] = _with_length(encode.field_table(dict(headers))[4:] + b"".join(kept))
        fields["delivery_mode"] = encode.octet(aio_pika.DeliveryMode.PERSISTENT)
        for name in ("user_id", "expiration") if without_expiration else ("user_id",):
            fields.pop(name, None)
        self._fields = fields

    @property
    def properties(self) -> Basic.Properties:
        """What aio-pika publishes."""
        return _EncodedProperties(self._fields)


class _EncodedProperties(Basic.Properties):
    """Encoded properties. aiormq recognises a returned message by its `message_id`, and sets a missing one."""

    def __init__(self, fields: _Fields) -> None:
        super().__init__(message_id=_text(fields.get("message_id", b"")))
        self._fields = fields

    def marshal(self) -> bytes:
        own = self._fields.get("message_id", b"")
        return _join(
            {**self._fields, "message_id": own if len(own) > 1 else encode.short_string(self.message_id or "")}
        )


def decodable(header: bytes) -> bytes:
    """Return the content header of a message without what can't be decoded, and with the two headers."""
    raw = header[_CONTENT_HEADER_BYTES:]
    fields: _Fields = {}
    errors: list[str] = []
    if len(raw) > MAX_BYTES:
        errors.append(f"the properties have {len(raw)} bytes; at most {MAX_BYTES} are allowed")
    published = _split(raw)
    headers = _decodable_headers(published.pop("headers", b"")[4:], errors)
    for name, value in published.items():
        try:
            _, decoded = decode.by_type(value, Basic.Properties.amqp_type(name))
            _CHECKS.get(name, bool)(decoded)
        except Exception as error:  # whatever the decoder raises, the connection must survive it
            errors.append(f"the property {_NAMES.get(name, name)} can't be decoded: {error}")
            if name == "message_id":  # see _EncodedProperties
                fields[name] = encode.short_string(_text(value))
        else:
            fields[name] = value
    marks: dict[str, Any] = {_RAW: bytearray(raw)}
    if errors:
        marks[_UNREADABLE] = "; ".join(errors[:_MAX_ERRORS])
    fields["headers"] = _with_length(encode.field_table(marks)[4:] + headers)
    return header[:_CONTENT_HEADER_BYTES] + _join(fields)


def _decodable_headers(table: bytes, errors: list[str]) -> bytes:
    """Return the entries of a table that can be decoded; add the errors of the others."""
    entries: list[bytes] = []
    count = 0
    for key, value in _values(table, keyed=True):
        try:
            for _ in _nested(value):
                count += 1
                if count > MAX_VALUES:
                    errors.append(f"the headers have more than {MAX_VALUES} values, those inside others included")
                    return b"".join(entries)
            decode.field_table(_with_length(_keyed(key, value)))
        except Exception as error:
            errors.append(f'the header "{key.decode(errors="backslashreplace")}" can\'t be decoded: {error}')
        else:
            if key not in _MARKS:
                entries.append(_keyed(key, value))
    return b"".join(entries)


def _nested(value: bytes, depth: int = 0) -> Iterator[bytes]:
    """Yield a value and the values inside it.

    Raises:
        ValueError: there are too many tables and arrays inside each other.
    """
    yield value
    if value[0] in b"FA":
        if depth == MAX_NESTING:
            raise ValueError(f"more than {MAX_NESTING} tables and arrays inside each other")
        for _, inner in _values(value[5:], keyed=value[:1] == b"F"):
            yield from _nested(inner, depth + 1)


def _values(content: bytes, *, keyed: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and the encoded value of each entry of a table; the items of an array have no key."""
    end = 0
    while end < len(content):
        start = end + (1 + content[end] if keyed else 0)
        kind = content[start]
        if kind in _WITH_LENGTH:
            size = 4 + int.from_bytes(content[start + 1 : start + 5], "big")
        else:
            size = _SIZES.get(kind, len(content))  # of an unknown type: the rest
        key, end = content[end + 1 : start], start + 1 + size
        yield key, content[start:end]


def _split(raw: bytes) -> _Fields:
    """Split a property list (AMQP 0-9-1, section 4.2.6.1). Its structure is valid: the broker has parsed it."""
    flags, end = int.from_bytes(raw[:2], "big"), 2
    fields = {}
    for name, flag in Basic.Properties.flags.items():
        if flags & flag:
            start = end
            kind = Basic.Properties.amqp_type(name)
            if kind == "shortstr":
                end += 1 + raw[start]
            elif kind == "table":
                end += 4 + int.from_bytes(raw[start : start + 4], "big")
            else:
                end += 1 if kind == "octet" else 8
            fields[name] = raw[start:end]
    return fields


def _join(fields: Mapping[str, bytes]) -> bytes:
    """Make a property list."""
    flags = {name: flag for name, flag in Basic.Properties.flags.items() if name in fields}
    return struct.pack(">H", sum(flags.values())) + b"".join(fields[name] for name in flags)


def _with_length(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _keyed(key: bytes, value: bytes) -> bytes:
    return bytes([len(key)]) + key + value


def _text(short_string: bytes) -> str:
    """Decode a short string; if it is not UTF-8, approximately, and as a text that is not too long to be encoded."""
    try:
        return short_string[1:].decode()
    except UnicodeDecodeError:
        return short_string[1:].decode(errors="replace")[:80]
