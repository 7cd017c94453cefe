"""Messages whose properties no AMQP library would encode, and publishing them over a socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from types import TracebackType

import aio_pika
from pamqp import commands, frame
from pamqp.base import Frame
from yarl import URL

FLAGS = commands.Basic.Properties.flags
ORDER = list(FLAGS)


def short(text: bytes) -> bytes:
    """Encode a short string; see section 4.2.5.3 of the specification of AMQP 0-9-1."""
    return bytes([len(text)]) + text


def long(content: bytes) -> bytes:
    """Encode a long string, or the content of a table or array."""
    return struct.pack(">I", len(content)) + content


def entry(key: bytes, value: bytes) -> bytes:
    """Encode a table with one entry; the value begins with its type."""
    return long(short(key) + value)


def nested(kind: bytes, depth: int) -> bytes:
    """Encode a table with tables (kind F) or arrays (A) inside each other, with the key k."""
    value = b""
    for _ in range(depth):
        value = kind + long(short(b"k") + value if value and kind == b"F" else value)
    return entry(b"k", value)


def properties(fields: Mapping[str, bytes]) -> bytes:
    """Return the property list of these encoded properties."""
    flags = sum(FLAGS[name] for name in fields)
    return struct.pack(">H", flags) + b"".join(fields[name] for name in ORDER if name in fields)


class _EncodedProperties(commands.Basic.Properties):
    def __init__(self, fields: Mapping[str, bytes]) -> None:
        super().__init__()
        self._fields = fields

    def marshal(self) -> bytes:
        return properties(self._fields)


class RawMessage(aio_pika.Message):
    """A message with these encoded properties."""

    def __init__(self, body: bytes, fields: Mapping[str, bytes]) -> None:
        super().__init__(body)
        self._fields = fields

    @property
    def properties(self) -> commands.Basic.Properties:
        return _EncodedProperties(self._fields)


class RawPublisher:
    """A connection with one channel.

    Args:
        url: of the broker.
    """

    def __init__(self, url: str) -> None:
        target = URL(url)
        assert target.host
        self._socket = socket.create_connection((target.host, target.port or 5672), 30)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(b"AMQP\0\0\x09\x01")
        self._receive()
        login = f"\0{target.user}\0{target.password}"
        self._send(0, commands.Connection.StartOk({}, "PLAIN", login, "en_US"))
        tune = self._receive()
        assert isinstance(tune, commands.Connection.Tune)
        self._send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._send(0, commands.Connection.Open(target.path.removeprefix("/") or "/"))
        self._receive()
        self._send(1, commands.Channel.Open())
        self._receive()
        self._send(1, commands.Confirm.Select())
        self._receive()

    def publish(self, routing_key: bytes, fields: Mapping[str, bytes], body: bytes, *, exchange: bytes = b"") -> None:
        """Publish a message with these encoded properties; return when the broker has confirmed it."""
        method = struct.pack(">IH", commands.Basic.Publish.index, 0) + short(exchange) + short(routing_key) + b"\0"
        header = struct.pack(">HHQ", commands.Basic.frame_id, 0, len(body)) + properties(fields)
        for kind, payload in ((1, method), (2, header), (3, body)):
            self._socket.sendall(struct.pack(">BHI", kind, 1, len(payload)) + payload + b"\xce")
        confirmation = self._receive()
        assert isinstance(confirmation, commands.Basic.Ack), (confirmation, dict(confirmation))

    def _send(self, channel: int, method: Frame) -> None:
        self._socket.sendall(frame.marshal(method, channel))

    def _receive(self) -> Frame:
        start = self._file.read(7)
        rest = self._file.read(struct.unpack(">I", start[3:])[0] + 1)
        return frame.unmarshal(start + rest)[2]

    def __enter__(self) -> RawPublisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()
