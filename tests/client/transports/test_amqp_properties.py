"""Messages whose properties aio-pika can't decode, and copies of messages. Without a broker."""

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

from savedmodel_bakery.client.transports.amqp_frames import Transport
from savedmodel_bakery.client.transports.amqp_properties import MAX_BYTES, MAX_VALUES, Copy, decodable, unreadable

CHANNEL: Any = None
CONTENT_HEADER = struct.pack(">HHQ", Basic.frame_id, 0, 4)
NOT_UTF8, NO_DATE = short(b"a\xff"), b"\xff" * 8
TEXTS = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "message_type",
    "user_id", "app_id", "cluster_id",
)  # fmt: skip
UNREADABLE = {
    **{name: ({name: NOT_UTF8}, f"property {name} can't be decoded: 'utf-8' codec can't") for name in TEXTS},
    "message_type": ({"message_type": NOT_UTF8}, "property type can't be decoded: 'utf-8' codec can't"),
    "no number": ({"expiration": short(b"soon")}, "property expiration can't be decoded: could not convert"),
    "no mode": ({"delivery_mode": b"\x07"}, "property delivery_mode can't be decoded: 7 is not a valid"),
    "year": ({"timestamp": struct.pack(">Q", 2**62)}, "property timestamp can't be decoded: year 146140482 is out"),
    "last year": ({"timestamp": NO_DATE}, "property timestamp can't be decoded: year"),
    "key": ({"headers": entry(b"k\xff", b"V")}, "header \"k\\xff\" can't be decoded: 'utf-8' codec can't"),
    "inner key": ({"headers": entry(b"k", b"F" + entry(b"\xff", b"V"))}, "header \"k\" can't be decoded: 'utf-8'"),
    "date": ({"headers": entry(b"k", b"T" + NO_DATE)}, 'header "k" can\'t be decoded: year'),
    "kind": ({"headers": entry(b"k", b"?rest")}, "header \"k\" can't be decoded: Unknown type: b'?'"),
    "tables": ({"headers": nested(b"F", 2000)}, 'header "k" can\'t be decoded: more than 32 tables and arrays inside'),
    "arrays": ({"headers": nested(b"A", 33)}, 'header "k" can\'t be decoded: more than 32 tables and arrays inside'),
    "values": ({"headers": long(b"\x01kV" * (MAX_VALUES + 1))}, "headers have more than 1000 values"),
    "inner values": ({"headers": entry(b"k", b"A" + long(b"V" * MAX_VALUES))}, "headers have more than 1000 values"),
    "size": (
        {"headers": entry(b"k", b"S" + long(bytes(MAX_BYTES)))}, "properties have 100016 bytes; at most 100000 are",
    ),
}  # fmt: skip
READABLE = {
    "nothing": {},
    "bytes": {"headers": entry(b"k", b"S" + long(b"\xff"))},
    "a double": {"headers": entry(b"k", b"d" + struct.pack(">d", 1e300))},
    "a decimal": {"headers": entry(b"k", b"D\x05" + struct.pack(">i", -3))},
    "a long key": {"headers": entry(b"k" * 255, b"V")},
    "as deep as allowed": {"headers": nested(b"F", 32)},
    "as many as allowed": {"headers": long(b"\x01kV" * MAX_VALUES)},
    "milliseconds": {"timestamp": struct.pack(">Q", 1_800_000_000_123)},
}


def receive(properties: bytes) -> aio_pika.IncomingMessage:
    """Decode a message with this property list as aio-pika does."""
    header = ContentHeader()
    header.unmarshal(decodable(CONTENT_HEADER + properties))
    assert 4 == header.body_size
    return aio_pika.IncomingMessage(DeliveredMessage(Basic.Deliver(), header, b"body", CHANNEL))


def copy(message: aio_pika.IncomingMessage, *, without_expiration: bool = False, **headers: str) -> bytes:
    """Return the property list of a copy."""
    copied = Copy(message, headers, without_headers=("x-d",), without_expiration=without_expiration)
    assert b"body" == copied.body
    return copied.properties.marshal()


@pytest.mark.parametrize(("fields", "reason"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_readable_is_read_and_the_rest_is_named_and_copied(fields: dict[str, bytes], reason: str) -> None:
    published = {"message_id": short(b"1"), "delivery_mode": b"\x02", "headers": long(b""), **fields}
    message = receive(properties(published))
    assert f"the {reason}" == (unreadable(message) or "")[: len(reason) + 4]
    if "message_id" not in fields:
        assert "1" == message.message_id
    published.pop("user_id", None)
    assert properties({**published, "delivery_mode": b"\x02"}) == copy(message)


@pytest.mark.parametrize("fields", READABLE.values(), ids=READABLE)
def test_a_readable_message_is_copied_unchanged(fields: dict[str, bytes]) -> None:
    published = {"message_id": short(b"1"), "delivery_mode": b"\x02", "headers": long(b""), **fields}
    message = receive(properties(published))
    assert unreadable(message) is None
    assert properties(published) == copy(message)


def test_a_publisher_can_not_declare_a_message_unreadable() -> None:
    forged = long(b"".join(short(name) + b"S" + long(b"forged") for name in (b"x-unreadable", b"x-raw")))
    published = properties({"headers": forged, "delivery_mode": b"\x02", "message_id": short(b"1")})
    message = receive(published)
    assert unreadable(message) is None
    assert published == copy(message)


def test_a_reserved_flag_is_ignored() -> None:
    """RabbitMQ ignores it too; pamqp would read further flags."""
    flags, *rest = struct.unpack(">H10s", properties({"correlation_id": short(b"123456789")}))
    message = receive(struct.pack(">H10s", flags | 1, *rest))
    assert ("123456789", None) == (message.correlation_id, unreadable(message))


@pytest.mark.parametrize("message_id", [None, b"", b"\xff", b"1"], ids=repr)
def test_a_copy_that_the_broker_returns_is_recognised(message_id: bytes | None) -> None:
    """By aiormq, which compares message ids; it sets one if there is none."""
    message = receive(properties({} if message_id is None else {"message_id": short(message_id)}))
    published = Copy(message, {}, without_headers=(), without_expiration=False).properties
    published.message_id = published.message_id or "set by aiormq"
    assert published.message_id == receive(published.marshal()).message_id


def test_a_copy_leaves_out_what_the_broker_would_act_upon() -> None:
    """CC would send the copy to other queues, and the broker refuses the id of another user."""
    names = (b"CC", b"BCC", b"x-death", b"CCC", b"k")
    headers = long(b"".join(short(name) + b"A" + long(b"") for name in names))
    fields = {"headers": headers, "user_id": short(b"me"), "expiration": short(b"1"), "message_id": short(b"1")}
    message = receive(properties(fields))
    kept = short(b"a") + b"S" + long(b"why") + b"".join(short(name) + b"A" + long(b"") for name in (b"CCC", b"k"))
    expected = {"headers": long(kept), "delivery_mode": b"\x02", "message_id": short(b"1")}
    assert properties(expected) == copy(message, a="why", without_expiration=True)
    assert properties({**expected, "expiration": short(b"1")}) == copy(message, a="why")


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
