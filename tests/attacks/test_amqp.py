"""Rows 7 and 8: messages whose properties can't be decoded, and replies that the broker refuses.

They wait between other messages, so that a worker that ends, or loses its connection, has these too.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aio_pika
import pytest
from amqp_worker import QUEUE, WorkerProcess, answering_server, command, predict_request, status, wait_for_status
from rabbitmq import RabbitMQ
from raw_amqp import RawPublisher, entry, long, nested, short

from savedmodel_bakery import AmqpClient, ClientError
from savedmodel_bakery.wire import amqp, schema

KEY, RESULTS = QUEUE.encode(), "results"
MAX_MESSAGE_BYTES = 200_000
LARGE = 99.0
"""A request with this value has a response that is larger than the broker allows."""

GOOD = {
    "content_type": short(amqp.PROTOBUF.encode()),
    "reply_to": short(RESULTS.encode()),
    "delivery_mode": b"\x02",
    "correlation_id": short(b"good"),
}
NOT_UTF8 = short(b"a\xff")
TO_NOBODY = {"reply_to": short(b"payroll")}
POISON = {
    "correlation_id": ({"correlation_id": NOT_UTF8}, "property correlation_id can't be decoded"),
    "type": ({"message_type": NOT_UTF8}, "property type can't be decoded"),
    "message_id": ({"message_id": NOT_UTF8}, "property message_id can't be decoded"),
    "reply_to": ({"reply_to": short(b"results\xff")}, "property reply_to can't be decoded"),
    "timestamp": ({"timestamp": struct.pack(">Q", 2**62)}, "property timestamp can't be decoded: year"),
    "key": ({"headers": entry(b"\xff", b"V")}, "property headers can't be decoded: \"\\xff\": 'utf-8'"),
    "date": ({"headers": entry(b"when", b"T" + b"\xff" * 8)}, "property headers can't be decoded: \"when\": year"),
    "tables": ({"headers": nested(b"F", 2000)}, "property headers can't be decoded: \"k\": more than 32 tables"),
    "arrays": ({"headers": nested(b"A", 2000)}, "property headers can't be decoded: \"k\": more than 32 tables"),
    "values": ({"headers": entry(b"k", b"A" + long(b"V" * 90_000))}, 'decoded: "k": more than 1000 values'),
    "size": ({**TO_NOBODY, "headers": entry(b"k", b"S" + long(bytes(130_900)))}, "the properties have 130"),
    "bytes": ({**TO_NOBODY, "headers": entry(b"k", b"S" + long(b"\xff"))}, 'reply_to "payroll" is not allowed'),
    "float": ({**TO_NOBODY, "headers": entry(b"k", b"d" + struct.pack(">d", 1e300))}, '"payroll" is not allowed'),
    "CC": ({**TO_NOBODY, "headers": entry(b"CC", b"A" + long(b"S" + long(KEY)))}, '"payroll" is not allowed'),
    "crafted": ({"reply_to": short(b"amq.rabbitmq.reply-to.AAAA.BBBB")}, "reply-to.AAAA.BBBB: INTERNAL_ERROR"),
    "large": ({}, "refuses a message to results: PRECONDITION_FAILED - message size"),
}  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RabbitMQ]:
    """A broker for small messages, whose queues exist; amq.fanout has the queue of requests."""
    with RabbitMQ(tmp_path / "rabbitmq", f"max_message_size = {MAX_MESSAGE_BYTES}\n") as running:
        yield running


async def prepare(url: str) -> None:
    """Declare the queue for results, and bind the queue of the worker to an exchange."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(RESULTS, durable=True, arguments=dict(amqp.QUORUM_ARGUMENTS))
        await (await channel.get_queue(QUEUE)).bind("amq.fanout")


def publish(url: str) -> None:
    """Publish each poison between good messages; the last has a routing key that is not UTF-8."""
    with RawPublisher(url) as publisher:
        for name, (fields, _) in POISON.items():
            good = {**GOOD, "correlation_id": short(f"good, before {name}".encode())}
            publisher.publish(KEY, good, predict_request([1]))
            poison = predict_request([LARGE if name == "large" else 1])
            publisher.publish(KEY, {**GOOD, "correlation_id": short(b"poison"), **fields}, poison)
        publisher.publish(b"\xff", GOOD, predict_request([1]), exchange=b"amq.fanout")


def results(url: str) -> list[tuple[str, str]]:
    """Return the correlation ids of the results, and the error of each or an empty string."""
    with AmqpClient(url) as client:
        return [
            (request_id, str(result) if isinstance(result, ClientError) else "")
            for request_id, result in client.results(RESULTS, idle_s=2)
        ]


def test_messages_that_can_not_be_decoded_or_answered(broker: RabbitMQ, tmp_path: Path) -> None:
    """Sent: 16 such messages between 17 others. Allowed: only they are dead letters, with reasons, each once.

    The operator's commands read them; requeued, they become dead letters again. Nobody loses a connection.
    """
    large_request, large_response = predict_request([LARGE]), schema.PredictResponse()
    large_response.model_spec.name = "x" * MAX_MESSAGE_BYTES
    responses = {large_request: large_response.SerializeToString()}
    with (
        answering_server(lambda request: responses.get(request, b"")) as target,
        WorkerProcess(broker.url(), "--server", target, "--model-name", "tiny", log=tmp_path / "log") as worker,
    ):
        asyncio.run(prepare(broker.url()))
        publish(broker.url())
        for _ in ("published", "requeued"):
            wait_for_status(broker.url(), ready=0, dead=len(POISON))
            reasons = status(broker.url(), "--reasons")["reasons"]
            assert len(POISON) == sum(reasons.values())
            for _, expected in POISON.values():
                assert any(expected in reason for reason in reasons), (expected, reasons)
            assert f"{len(POISON)} requeued\n" == command(broker.url(), "requeue")
        wait_for_status(broker.url(), ready=0, dead=len(POISON))
        with RawPublisher(broker.url()) as publisher:  # a result that the client can't decode
            publisher.publish(RESULTS.encode(), {"correlation_id": NOT_UTF8, "timestamp": b"\xff" * 8}, b"x")
        received = results(broker.url())
        good = {request_id for request_id, _ in received if request_id.startswith("good")}  # some may arrive twice
        assert {"good", *(f"good, before {name}" for name in POISON)} == good, received
        assert 0 == worker.stop()
    assert "reconnecting" not in worker.log.read_text()
    publish(broker.url())
    assert f"{2 * len(POISON) + 1} purged\n" == command(broker.url(), "purge")
    broker.control("eval", "application:set_env(rabbit, max_message_size, 1).")  # of channels that are opened later
    with pytest.raises(subprocess.CalledProcessError) as refused:
        command(broker.url(), "requeue")
    left = (
        f"0 requeued, {len(POISON)} left as dead letters: the broker refuses a message to {QUEUE}: PRECONDITION_FAILED"
    )
    assert (1, True) == (refused.value.returncode, left in refused.value.stderr), refused.value.stderr
    wait_for_status(broker.url(), ready=0, dead=len(POISON))
