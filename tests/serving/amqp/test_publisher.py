"""How messages are published if the broker refuses one of them, over connections in memory. All times are virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aio_pika import Message, exceptions
from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ConnectionClosed,
    ConnectionFrameError,
    ConnectionInternalError,
)
from fake_channel import FakeBroker, FakeChannel, in_virtual_time

from savedmodel_bakery.serving.amqp.publisher import Publisher, RefusedError

REFUSED = "refused"


async def publish(broker: Any, queues: Sequence[str], *, at_once: int) -> list[Any]:
    """Publish a message to each queue; return the exceptions."""
    for name in {*queues, REFUSED}:
        await broker.channel.declare_queue(name)
    async with Publisher(broker, "test", at_once=at_once) as publisher:
        publishing = [publisher.publish(Message(b"%d" % number), queue) for number, queue in enumerate(queues)]
        return await asyncio.gather(*publishing, return_exceptions=True)


def bodies(broker: Any, queue: str) -> set[bytes]:
    return {message.body for message in broker.channel.queues[queue].published}


REFUSALS = [
    ChannelNotFoundEntity("NOT_FOUND - no exchange"),
    ChannelPreconditionFailed("PRECONDITION_FAILED - message size 134217729"),
    exceptions.ChannelClosed(311, "CONTENT_TOO_LARGE"),
    ConnectionInternalError("INTERNAL_ERROR"),
    ConnectionFrameError("FRAME_ERROR - type 2"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
@in_virtual_time
async def test_only_the_message_that_the_broker_refuses_fails(refusal: Exception) -> None:
    broker = FakeBroker(FakeChannel())
    broker.refusals[REFUSED] = refusal
    results = await publish(broker, ["a", "a", REFUSED, "a", REFUSED, "a"], at_once=6)
    assert [None, None, RefusedError, None, RefusedError, None] == [result and type(result) for result in results]
    assert f"the broker refuses a message to {REFUSED}: {refusal.args[-1]}" == str(results[2])
    assert {b"0", b"1", b"3", b"5"} == bodies(broker, "a")


@in_virtual_time
async def test_messages_that_are_published_one_at_a_time_arrive_once() -> None:
    broker = FakeBroker(FakeChannel())
    broker.refusals[REFUSED] = REFUSALS[0]
    await publish(broker, ["a", REFUSED, "a", REFUSED, "a"], at_once=1)
    assert [b"0", b"2", b"4"] == [message.body for message in broker.channel.queues["a"].published]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionClosed(320, "CONNECTION_FORCED - broker forced connection closure"),
        ChannelAccessRefused("ACCESS_REFUSED - access to exchange 'amq.default' refused"),
    ],
    ids=["shutdown", "permission"],
)
@in_virtual_time
async def test_an_error_that_is_not_about_the_message_is_raised(error: Exception) -> None:
    broker = FakeBroker(FakeChannel())
    broker.refusals[REFUSED] = error
    assert [error] == await publish(broker, [REFUSED], at_once=1)
    assert 2 == broker.connected


@in_virtual_time
async def test_one_connection_is_used_while_it_is_open() -> None:
    """A queue that is full, or missing, closes none."""
    broker = FakeBroker(FakeChannel())
    await broker.channel.declare_queue("full")
    broker.channel.queues["full"].max_length = 0
    async with Publisher(broker, "test", at_once=2) as publisher:  # type: ignore[arg-type]
        with pytest.raises(exceptions.PublishError):
            await publisher.publish(Message(b""), "missing")
        with pytest.raises(exceptions.DeliveryError):
            await publisher.publish(Message(b""), "full")
    assert 1 == broker.connected
