"""Messages whose properties aio-pika can't decode. Without a broker."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from aiormq.connection import FrameReceiver
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.frame import marshal
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat
from raw_amqp import entry, long, nested, properties, short
from yarl import URL

from savedmodel_bakery.client.transports.amqp_frames import (
    MAX_BYTES,
    MAX_VALUES,
    Transport,
    decodable_header,
    unreadable,
)

CHANNEL: Any = None
CONTENT_HEADER = struct.pack(">HHQ", Basic.frame_id, 0, 4)
NOT_UTF8, NO_DATE = short(b"a\xff"), b"\xff" * 8
TEXTS = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "message_type",
    "user_id", "app_id", "cluster_id",
)  # fmt: skip
IN_K = 'property headers can\'t be decoded: "k": '
UNREADABLE = {
    **{name: ({name: NOT_UTF8}, f"property {name} can't be decoded: 'utf-8' codec can't") for name in TEXTS},
    "message_type": ({"message_type": NOT_UTF8}, "property type can't be decoded: 'utf-8' codec can't"),
    "no number": ({"expiration": short(b"soon")}, "property expiration can't be decoded: could not convert"),
    "no mode": ({"delivery_mode": b"\x07"}, "property delivery_mode can't be decoded: 7 is not a valid"),
    "year": ({"timestamp": struct.pack(">Q", 2**62)}, "property timestamp can't be decoded: year 146140482 is out"),
    "last year": ({"timestamp": NO_DATE}, "property timestamp can't be decoded: year"),
    "key": ({"headers": entry(b"k\xff", b"V")}, 'property headers can\'t be decoded: "k\\xff": \'utf-8\''),
    "inner key": ({"headers": entry(b"k", b"F" + entry(b"\xff", b"V"))}, IN_K + "'utf-8'"),
    "date": ({"headers": entry(b"k", b"T" + NO_DATE)}, IN_K + "year"),
    "kind": ({"headers": entry(b"k", b"?rest")}, IN_K + "Unknown type: b'?'"),
    "tables": ({"headers": nested(b"F", 2000)}, IN_K + "more than 32 tables and arrays"),
    "arrays": ({"headers": nested(b"A", 33)}, IN_K + "more than 32 tables and arrays"),
    "values": ({"headers": long(b"\x01kV" * (MAX_VALUES + 1))}, IN_K + "more than 1000"),
    "inner values": (
        {"headers": entry(b"k", b"A" + long(b"V" * MAX_VALUES))}, IN_K + "more than 1000",
    ),
    "size": (
        {"headers": entry(b"k", b"S" + long(bytes(MAX_BYTES)))}, "properties have 100016 bytes; at most 100000 are",
    ),
}  # fmt: skip
READABLE = {
    "nothing": ({}, None),
    "bytes": ({"headers": entry(b"k", b"S" + long(b"\xff"))}, b"\xff"),
    "a double": ({"headers": entry(b"k", b"d" + struct.pack(">d", 1e300))}, 1e300),
    "as deep as allowed": ({"headers": nested(b"A", 2)}, [[]]),
    "as many as allowed": ({"headers": long(b"\x01kV" * MAX_VALUES)}, None),
    "milliseconds": ({"timestamp": struct.pack(">Q", 1_800_000_000_123)}, None),
}


def receive(properties: bytes) -> aio_pika.IncomingMessage:
    """Decode a message with this property list as aio-pika does."""
    header = ContentHeader()
    header.unmarshal(decodable_header(CONTENT_HEADER + properties))
    assert 4 == header.body_size
    return aio_pika.IncomingMessage(DeliveredMessage(Basic.Deliver(), header, b"body", CHANNEL))


@pytest.mark.parametrize(("fields", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_readable_is_read_and_the_rest_is_named(fields: dict[str, bytes], reason: str) -> None:
    message = receive(properties({"message_id": short(b"1"), "priority": b"\x07", **fields}))
    assert f"the {reason}" == (unreadable(message) or "")[: len(reason) + 4]
    assert 7 == message.priority
    assert ("1" if "message_id" not in fields else None) == message.message_id


@pytest.mark.parametrize(("fields", "expected"), READABLE.values(), ids=READABLE)
def test_a_readable_message_is_unchanged(fields: dict[str, bytes], expected: object) -> None:
    message = receive(properties({"message_id": short(b"1"), **fields}))
    assert unreadable(message) is None
    assert ("1", expected) == (message.message_id, message.headers.get("k"))


def test_a_publisher_can_only_harm_its_own_message() -> None:
    """A header of the sender that looks like a reason is a text, whatever its type."""
    message = receive(properties({"headers": entry(b"x-unreadable", b"A" + long(b"V"))}))
    assert "[None]" == unreadable(message)


def test_a_reserved_flag_is_ignored() -> None:
    """RabbitMQ ignores it too; pamqp would read further flags."""
    flags, *rest = struct.unpack(">H10s", properties({"correlation_id": short(b"123456789")}))
    message = receive(struct.pack(">H10s", flags | 1, *rest))
    assert ("123456789", None) == (message.correlation_id, unreadable(message))


def test_frames_are_read_as_aiormq_reads_them() -> None:
    """Those of messages whose exchange, routing key and correlation id are not UTF-8, among others."""
    methods = [
        Basic.Deliver("tag", 2**63 - 1, True, "x" * 126, "k"),
        Basic.GetOk(2**63 - 1, False, "x" * 126, "k", 7),
        Basic.Return(312, "NO_ROUTE", "x" * 126, "k"),
    ]
    content = [ContentHeader(0, 4, Basic.Properties(correlation_id="k")), ContentBody(b"\1\2")]
    sent = b"".join(
        marshal(each, 3).replace(b"xx", b"\xff\xfe").replace(b"\1k", b"\1\xff") for each in methods + content
    )

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent + marshal(Heartbeat(), 0))
        writer.close()

    async def run() -> list[Any]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await Transport().create(URL(f"amqp://127.0.0.1:{port}/"), ssl_context_provider=None)
            receiver = FrameReceiver(reader)
            received = [await receiver.get_frame() for _ in range(len(methods + content) + 1)]
            writer.close()
            return received

    *received, (_, channel, heartbeat) = asyncio.run(run())
    assert (0, Heartbeat) == (channel, type(heartbeat))
    assert [3] * 5 == [channel for _, channel, _ in received]
    *frames, header, body = (frame for _, _, frame in received)
    for method, frame in zip(methods, frames, strict=True):
        method.exchange, method.routing_key = "?" * 126, "?"
        assert (type(method), dict(method)) == (type(frame), dict(frame))
    assert (4, None, b"\1\2") == (header.body_size, header.properties.correlation_id, body.value)
