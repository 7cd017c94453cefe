"""Reads a connection to a broker such that aiormq and aio-pika can decode every message.

aiormq decodes the properties of a message while it reads the connection, and loses the connection if it can't: because
of text that is not UTF-8, a date after the year 9999, or 2000 tables inside each other, which the broker all accepts.
The broker then delivers the message again, with all that were delivered beside it. So properties that can't be decoded
are removed before aiormq reads them, and a header says why.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any, cast

from aio_pika import DeliveryMode
from aio_pika.abc import AbstractIncomingMessage
from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import constants, decode, encode
from pamqp.commands import Basic
from yarl import URL

from savedmodel_bakery.wire.amqp import header_text

MAX_NESTING = 32
MAX_VALUES = 1000
"""Tables and arrays inside each other in a header, and values in all headers. aiormq decodes tables recursively, and
takes a time that grows with the square of the number of values."""
MAX_BYTES = 100_000
"""Size of the properties. The broker refuses copies with more than 131,072 (its `frame_max`)."""

_UNREADABLE = "x-unreadable"
_CONTENT_HEADER_BYTES = 12  # before the properties: class, weight, size of the body
_SIZES = {
    kind: size
    for kinds, size in ((b"V\0", 0), (b"tbB", 1), (b"su", 2), (b"Iif", 4), (b"D", 5), (b"lLdT", 8))
    for kind in kinds
}  # of values, by type (rabbitmq.com/amqp-0-9-1-errata)
_WITH_LENGTH = b"SxFA"  # types of values that begin with their length
_TO_ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))


def unreadable(message: AbstractIncomingMessage) -> str | None:
    """Return which properties of a message could not be decoded when it first arrived, and why; None if all could.

    Copies of the message keep the reason, since they lack these properties.
    """
    reason = message.headers.get(_UNREADABLE)
    return None if reason is None else header_text(reason)


class Transport(TransportFactory):
    """Connects aiormq to a broker such that it can decode every message."""

    async def create(self, url: URL, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; `options` are those of aiormq."""
        factory = TLSTransportFactory() if url.scheme == "amqps" else TCPTransportFactory()
        reader, writer = await factory.create(url, **options)
        return cast(asyncio.StreamReader, _Reader(reader)), writer


class _Reader:
    """Reads as aiormq does: the first byte of a frame, then its channel and size, then the rest."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._rest = b""  # of a frame that was changed

    def at_eof(self) -> bool:
        return not self._rest and self._reader.at_eof()

    async def readexactly(self, size: int) -> bytes:
        if self._rest:
            read, self._rest = self._rest[:size], self._rest[size:]
            return read
        read = await self._reader.readexactly(size)
        if size == 1 and read[0] in (constants.FRAME_METHOD, constants.FRAME_HEADER):
            channel, length = struct.unpack(">HI", await self._reader.readexactly(6))
            payload = (await self._reader.readexactly(length + 1))[:-1]
            payload = decodable_method(payload) if read[0] == constants.FRAME_METHOD else decodable_header(payload)
            self._rest = struct.pack(">HI", channel, len(payload)) + payload + constants.FRAME_END_CHAR
        return read


def decodable_method(payload: bytes) -> bytes:
    """Return a method; in an exchange or a routing key that is not UTF-8, question marks replace all but ASCII."""
    index = int.from_bytes(payload[:4], "big")
    if index == Basic.Deliver.index:
        end = 5 + payload[4] + 9  # after consumer tag, delivery tag and flag
    elif index == Basic.GetOk.index:
        end = 4 + 9  # after delivery tag and flag
    elif index == Basic.Return.index:
        end = 7 + payload[6]  # after reply code and text
    else:
        return payload
    for _ in ("exchange", "routing key"):
        start, end = end + 1, end + 1 + payload[end]
        try:
            payload[start:end].decode()
        except UnicodeDecodeError:
            payload = payload[:start] + payload[start:end].translate(_TO_ASCII) + payload[end:]
    return payload


def decodable_header(payload: bytes) -> bytes:
    """Return the content header of a message without the properties that can't be decoded.

    If there are any, the reason replaces all headers of the sender. The structure of a property list (AMQP 0-9-1,
    section 4.2.6.1) is valid: the broker has parsed it.
    """
    flags, end = int.from_bytes(payload[_CONTENT_HEADER_BYTES:][:2], "big"), _CONTENT_HEADER_BYTES + 2
    fields: dict[str, bytes] = {}
    errors: list[str] = []
    size = len(payload) - _CONTENT_HEADER_BYTES
    if size > MAX_BYTES:
        errors.append(f"the properties have {size} bytes; at most {MAX_BYTES} are allowed")
    for name, flag in Basic.Properties.flags.items():
        if flags & flag:
            kind = Basic.Properties.amqp_type(name)
            start, end = end, end + _property_size(kind, payload[end : end + 4])
            try:
                _check_property(name, kind, payload[start:end])
            except Exception as error:  # whatever the decoder raises, the connection must survive it
                errors.append(f"the property {'type' if name == 'message_type' else name} can't be decoded: {error}")
            else:
                fields[name] = payload[start:end]
    if errors:
        fields["headers"] = encode.field_table({_UNREADABLE: "; ".join(errors)})
    kept = {name: flag for name, flag in Basic.Properties.flags.items() if name in fields}
    properties = struct.pack(">H", sum(kept.values())) + b"".join(fields[name] for name in kept)
    return payload[:_CONTENT_HEADER_BYTES] + properties


def _property_size(kind: str, start: bytes) -> int:
    if kind == "shortstr":
        return 1 + start[0]
    if kind == "table":
        return 4 + int.from_bytes(start, "big")
    return 1 if kind == "octet" else 8


def _check_property(name: str, kind: str, value: bytes) -> None:
    if kind == "table":
        _check_headers(value[4:])
        return
    decoded: Any = decode.by_type(value, kind)[1]
    if name == "delivery_mode":  # as aio-pika decodes it
        DeliveryMode(decoded or 1)
    if name == "expiration":
        float(decoded)


def _check_headers(table: bytes) -> None:
    """Decode each header alone; raises ValueError that names the first that can't be decoded or exceeds a limit."""
    count = 0
    for key, value in _values(table, keyed=True):
        try:
            count += _count_values(value)
            if count > MAX_VALUES:
                raise ValueError(f"more than {MAX_VALUES} values in the headers, those inside others included")
            header = bytes([len(key)]) + key + value
            decode.field_table(struct.pack(">I", len(header)) + header)
        except Exception as error:  # the decoder raises many types
            raise ValueError(f'"{key.decode(errors="backslashreplace")}": {error}') from error


def _count_values(value: bytes, depth: int = 0) -> int:
    """Return how many values one has, itself included; stops above the limit. Raises ValueError if it is too deep."""
    count = 1
    if value[0] in b"FA":
        if depth == MAX_NESTING:
            raise ValueError(f"more than {MAX_NESTING} tables and arrays inside each other")
        for _, inner in _values(value[5:], keyed=value[:1] == b"F"):
            count += _count_values(inner, depth + 1)
            if count > MAX_VALUES:
                break
    return count


def _values(content: bytes, *, keyed: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key, empty in an array, and the encoded value of each entry of a table or array."""
    end = 0
    while end < len(content):
        start = end + (1 + content[end] if keyed else 0)
        kind = content[start]
        if kind in _WITH_LENGTH:
            size = 5 + int.from_bytes(content[start + 1 : start + 5], "big")
        else:
            size = 1 + _SIZES.get(kind, len(content))  # of an unknown type: the rest
        key, end = content[end + 1 : start], start + size
        yield key, content[start:end]
