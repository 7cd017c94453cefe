"""The worker's queue and that of its dead letters: how they are made, looked at, emptied and filled again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from savedmodel_bakery.serving.amqp.errors import refusal
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError

MOST_REASONS = 1000
_OF_THE_BROKER = "amq."  # how names begin that it gave; such a queue is gone when its consumer is
_ADDED = (amqp.REASON, amqp.DELIVERY_COUNT, "x-death", "x-first-death-", "x-last-death-")


@dataclass(frozen=True)
class QueueStatus:
    """What a queue holds.

    Attributes:
        queue: its name.
        ready: messages that wait, those in workers' hands not counted.
        consumers: workers.
        dead: dead letters.
        reasons: dead letters by why they died, where that was asked for.
    """

    queue: str
    ready: int
    consumers: int
    dead: int
    reasons: dict[str, int]


def dead_queue(queue: str) -> str:
    """Name of the queue that a queue's dead letters go to."""
    return f"{queue}.dead"


async def declare(channel: AbstractChannel, queue: str, *, delivery_limit: int) -> AbstractQueue:
    """Make both queues, unless they are there.

    Both are quorum queues (rabbitmq.com/docs/quorum-queues): replicated, and never without what they have confirmed.
    The first gives a message up that came back more than `delivery_limit` times, and keeps it until the second has
    confirmed it.
    """
    await channel.declare_queue(dead_queue(queue), durable=True, arguments=dict(amqp.QUORUM_ARGUMENTS))
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": delivery_limit,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead_queue(queue),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # which that strategy wants
    }
    return await channel.declare_queue(queue, durable=True, arguments=arguments)


async def reply(channel: AbstractChannel, to: str | None, message: aio_pika.Message) -> str | None:
    """Send an answer, and return when the broker has it; else why nobody can get it.

    A queue whose name is the broker's own is gone when its caller is: that is no reason to keep the question.
    """
    if not to:
        return None
    try:
        await channel.default_exchange.publish(message, to, mandatory=True)
    except exceptions.PublishError:
        return None if to.startswith(_OF_THE_BROKER) else f'there is no queue "{to}" that the answer could be sent to'
    return None


async def bury(channel: AbstractChannel, message: AbstractIncomingMessage, queue: str, reason: str) -> None:
    """Send a message to the dead letters, with the reason, and return when the broker has it."""
    await channel.default_exchange.publish(_copy(message, {amqp.REASON: reason}), dead_queue(queue), mandatory=True)


async def status(channel: AbstractChannel, queue: str, *, with_reasons: bool) -> QueueStatus:
    """Count what is there; for the reasons the first thousand dead letters are read, and stay."""
    found = await channel.declare_queue(queue, passive=True)
    dead = await channel.declare_queue(dead_queue(queue), passive=True)
    reasons: Counter[str] = Counter()
    letters = [letter async for letter in _take(dead, most=MOST_REASONS)] if with_reasons else []
    for letter in letters:
        reasons[_reason(letter)] += 1
        await letter.nack(requeue=True)
    counts, dead_count = found.declaration_result, dead.declaration_result.message_count
    return QueueStatus(queue, counts.message_count or 0, counts.consumer_count or 0, dead_count or 0, dict(reasons))


async def purge(channel: AbstractChannel, queue: str) -> int:
    """Take out all that waits, and tell every caller so; the number of messages."""
    count = 0
    # Not CANCELLED, which a server that closes says, and after which callers may ask again.
    why = StatusError(Code.ABORTED, f'queue "{queue}" was purged')
    async for message in _take(await channel.declare_queue(queue, passive=True)):
        answer = refusal(why, message.content_type or "")
        told = aio_pika.Message(
            answer.body,
            headers=answer.headers,
            content_type=answer.content_type,
            correlation_id=message.correlation_id,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await reply(channel, message.reply_to, told)
        await message.ack()
        count += 1
    return count


async def requeue(channel: AbstractChannel, queue: str) -> int:
    """Put all dead letters back at the end of the queue, as they first came; the number of messages."""
    count = 0
    await channel.declare_queue(queue, passive=True)
    async for letter in _take(await channel.declare_queue(dead_queue(queue), passive=True)):
        await channel.default_exchange.publish(_copy(letter, {}), queue, mandatory=True)
        await letter.ack()
        count += 1
    return count


async def _take(queue: AbstractQueue, most: int | None = None) -> AsyncIterator[AbstractIncomingMessage]:
    """What is there now, one by one; what comes meanwhile stays."""
    count = queue.declaration_result.message_count or 0
    for _ in range(count if most is None else min(count, most)):
        message = await queue.get(fail=False)
        if message is None:
            return
        yield message


def _copy(message: AbstractIncomingMessage, headers: dict[str, Any]) -> aio_pika.Message:
    """The message as its sender wrote it, but for its expiry, and other headers of our own."""
    kept = {name: value for name, value in message.headers.items() if not name.startswith(_ADDED)}
    return aio_pika.Message(
        message.body,
        headers=kept | headers,
        content_type=message.content_type,
        type=message.type,
        reply_to=message.reply_to,
        correlation_id=message.correlation_id,
        message_id=message.message_id,
        timestamp=message.timestamp,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def _reason(letter: AbstractIncomingMessage) -> str:
    said = letter.headers.get(amqp.REASON) or letter.headers.get("x-first-death-reason") or "unknown"
    return amqp.text(said)
