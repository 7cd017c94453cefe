"""Reads a connection to a broker such that aiormq can decode every message.

aiormq decodes the properties of a message while it reads the connection, and loses the connection if it can't. The
broker then delivers the message again, with all that were delivered beside it. So the frames of a message are made
decodable before aiormq reads them; `amqp_properties` says how.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

from aiormq.connection import TCPTransportFactory, TLSTransportFactory, TransportFactory
from pamqp import constants
from pamqp.commands import Basic
from yarl import URL

from savedmodel_bakery.client.transports import amqp_properties

_TO_ASCII = bytes(byte if byte < 128 else ord("?") for byte in range(256))


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
            payload = (
                _decodable_method(payload) if read[0] == constants.FRAME_METHOD else amqp_properties.decodable(payload)
            )
            self._rest = struct.pack(">HI", channel, len(payload)) + payload + constants.FRAME_END_CHAR
        return read


def _decodable_name(name: bytes) -> bytes:
    """Return a name in which, if it is not UTF-8, question marks stand for all that is not ASCII."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return name.translate(_TO_ASCII)
    return name


def _decodable_method(payload: bytes) -> bytes:
    """Return a method; the exchange and the routing key of a message may be any bytes."""
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
        payload = payload[:start] + _decodable_name(payload[start:end]) + payload[end:]
    return payload
