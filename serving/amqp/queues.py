"""The worker's queues: declaring, publishing, counting, purging, requeueing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from pamqp import encode

from savedmodel_bakery.client.transports.amqp_frames import unreadable
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.serving.amqp.codec import Response, encode_failure
from savedmodel_bakery.serving.amqp.publisher import Publisher, RefusedError
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

MAX_REASONS = 1000
_ADDED_HEADERS = (
    amqp.REASON, amqp.DELIVERY_COUNT, amqp.DELIVERIES, amqp.ATTEMPTS, "x-death", "x-first-death-", "x-last-death-",
)  # fmt: skip
_COPIED = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id", "timestamp", "type",
    "app_id",
)  # fmt: skip

_GENERATED = ("amq.*", "amq_*")
"""Names that the broker or a robust connection of aio-pika has generated; such queues end with their callers."""


class Queues(NamedTuple):
    """The queues that a worker consumes."""

    requests: AbstractQueue  # where callers publish
    # messages without a reply, because a worker or the model server has ended while it processed them
    retries: AbstractQueue


@dataclass(frozen=True)
class QueueStatus:
    """Message counts of a queue."""

    queue: str
    ready: int  # messages that wait for a worker
    consumers: int  # workers
    dead: int  # dead letters
    reasons: dict[str, int]  # number of dead letters by reason; empty if the reasons were not read


def retry_queue(queue: str) -> str:
    """Name of the queue for redelivered messages."""
    return f"{queue}.retry"


def dead_queue(queue: str) -> str:
    """Name of the queue for dead letters."""
    return f"{queue}.dead"


async def declare(channel: AbstractChannel, queue: str, *, delivery_limit: int) -> Queues:
    """Declare the queue, its retry queue and its dead-letter queue; each is created unless it exists.

    All are quorum queues (rabbitmq.com/docs/quorum-queues): replicated, and safe once they have confirmed a message.
    The first two dead-letter a message that was returned more than `delivery_limit` times, and keep it until the
    dead-letter queue has confirmed it.
    """
    await channel.declare_queue(dead_queue(queue), durable=True, arguments=dict(amqp.QUORUM_ARGUMENTS))
    arguments: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": delivery_limit,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead_queue(queue),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # required by that strategy
    }
    requests = await channel.declare_queue(queue, durable=True, arguments=arguments)
    return Queues(requests, await channel.declare_queue(retry_queue(queue), durable=True, arguments=arguments))


async def reply(
    publisher: Publisher, message: AbstractIncomingMessage, response: Response, expiration_s: float | None = None
) -> str | None:
    """Publish the response to a message, whose `reply_to` was checked; return after the broker has confirmed it.

    Returns why the response can't be delivered, or None: the queue does not exist, or the broker refuses the response.
    If a queue with a generated name is gone, its caller has disconnected: that is no reason to keep the message.
    """
    assert message.reply_to
    published = aio_pika.Message(
        response.body,
        headers=amqp.encode_status(response.error),
        content_type=response.content_type,
        type=response.type,
        correlation_id=message.correlation_id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        expiration=expiration_s,
    )
    try:
        await publisher.publish(published, message.reply_to)
    except RefusedError as error:
        return str(error)
    except exceptions.PublishError:
        is_temporary = _is_generated_queue(message.reply_to)
        return None if is_temporary else f'reply queue "{message.reply_to}" does not exist'
    return None


def copy(
    message: AbstractIncomingMessage, headers: dict[str, Any], *, without_expiration: bool = True
) -> aio_pika.Message:
    """Make a persistent copy of a message as its sender published it, and add headers.

    Without what the broker would not accept from another user or would act upon: `user_id`, CC and BCC. pamqp encodes
    the headers: doubles are rounded to 32 bits, and left out if they are too large, as are strings that are not UTF-8.
    """
    kept = {
        name: value
        for name, value in message.headers.items()
        if not name.startswith(_ADDED_HEADERS) and name not in ("CC", "BCC") and _is_encodable(value)
    }
    return aio_pika.Message(
        message.body,
        headers={**kept, **headers},
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        expiration=None if without_expiration else message.expiration,
        **{name: getattr(message, name) for name in _COPIED},
    )


def _is_encodable(value: Any) -> bool:
    try:
        encode.encode_table_value(value)
    except Exception:  # pamqp raises many types
        return False
    return True


async def status(connection: AbstractConnection, queue: str, *, with_reasons: bool) -> QueueStatus:
    """Count messages and workers; read the reasons of the first thousand dead letters if requested."""
    requests = await (await connection.channel()).declare_queue(queue, passive=True)
    retries = await _find(connection, retry_queue(queue))
    dead = await _find(connection, dead_queue(queue))
    reasons: Counter[str] = Counter()
    letters = [letter async for letter in _get_all(dead, limit=MAX_REASONS)] if with_reasons else []
    for letter in letters:
        reasons[_reason(letter)] += 1
        await letter.nack(requeue=True)
    return QueueStatus(
        queue=queue,
        ready=_message_count(requests) + _message_count(retries),
        consumers=requests.declaration_result.consumer_count or 0,
        dead=_message_count(dead),
        reasons=dict(reasons),
    )


async def purge(connection: AbstractConnection, publisher: Publisher, queue: str, result_queues: Sequence[str]) -> int:
    """Remove all waiting messages and return their number; those whose reply queue is allowed get the reply ABORTED."""
    count = 0
    # CANCELLED would be wrong: a server sends it while it shuts down, and callers may retry after it.
    error = StatusError(Code.ABORTED, f'queue "{queue}" was purged')
    requests = await (await connection.channel()).declare_queue(queue, passive=True)
    for waiting in (requests, await _find(connection, retry_queue(queue))):
        async for message in _get_all(waiting):
            if check_reply_queue(message.reply_to, result_queues) is None:
                await reply(publisher, message, encode_failure(error, message.content_type or ""))
            await message.ack()
            count += 1
    return count


async def requeue(connection: AbstractConnection, publisher: Publisher, queue: str) -> int:
    """Move the dead letters to the end of the queue, without added headers; those that the broker refuses stay."""
    count, refusals = 0, []
    await (await connection.channel()).declare_queue(queue, passive=True)
    async for letter in _get_all(await _find(connection, dead_queue(queue))):
        try:
            await publisher.publish(copy(letter, {}), queue)
        except RefusedError as error:
            refusals.append(str(error))  # without an acknowledgement, it returns to its queue when the connection ends
        else:
            await letter.ack()
            count += 1
    if refusals:
        raise RequestRefusedError(
            Code.FAILED_PRECONDITION, f"{count} requeued, {len(refusals)} left as dead letters: {refusals[0]}"
        )
    return count


async def _find(connection: AbstractConnection, name: str) -> AbstractQueue | None:
    """Return a queue, or None if it does not exist: an earlier release's worker declared no retry queue.

    Opens a channel for it, because the broker closes a channel that looks for a missing queue.
    """
    channel: AbstractChannel = await connection.channel()
    with suppress(exceptions.ChannelNotFoundEntity):
        return await channel.declare_queue(name, passive=True)
    return None


async def _get_all(queue: AbstractQueue | None, limit: int | None = None) -> AsyncIterator[AbstractIncomingMessage]:
    """Get the messages that the queue held when it was declared; messages that arrive meanwhile stay."""
    if queue is None:
        return
    count = _message_count(queue)
    for _ in range(count if limit is None else min(count, limit)):
        message = await queue.get(fail=False)
        if message is None:
            return
        yield message


def _message_count(queue: AbstractQueue | None) -> int:
    return queue.declaration_result.message_count or 0 if queue else 0


def _reason(letter: AbstractIncomingMessage) -> str:
    reason = letter.headers.get(amqp.REASON) or letter.headers.get("x-first-death-reason")
    return amqp.header_text(reason or unreadable(letter) or "unknown")


def check_reply_queue(reply_to: str | None, patterns: Sequence[str]) -> StatusError | None:
    """Return why a message can have no reply; None if its reply may be sent.

    Allowed are queues with generated names and those that match one of the patterns: a name, or a prefix and `*`.
    """
    if not reply_to:
        return invalid_argument("the message has no reply_to")
    allowed = [*_GENERATED, *patterns]
    if _matches_any(reply_to, allowed):
        return None
    return StatusError(
        Code.PERMISSION_DENIED, f'reply_to "{reply_to}" is not allowed: must be {" or ".join(allowed)} (--result-queue)'
    )


def _is_generated_queue(name: str) -> bool:
    """Return whether the broker or a client has generated the name of a queue, which ends with its caller."""
    return _matches_any(name, _GENERATED)


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(name.startswith(text[:-1]) if text.endswith("*") else name == text for text in patterns)
