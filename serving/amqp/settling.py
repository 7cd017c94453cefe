"""What becomes of a delivered message: a reply, another attempt, or the dead-letter queue. Then it is acknowledged.

A message is acknowledged after the broker has confirmed its reply, so no message is lost when a worker is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass

from aio_pika.abc import AbstractIncomingMessage
from prometheus_client import Counter

from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.codec import Response, encode_failure
from savedmodel_bakery.serving.amqp.publisher import Publisher, RefusedError
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

MESSAGES = Counter(
    "bakery_amqp_messages",
    "Messages that this worker has answered, by the status of the answer.",
    ("status",),
    registry=REGISTRY,
)
REDELIVERIES = Counter(
    "bakery_amqp_redeliveries",
    "Messages that this worker received although they had been delivered or attempted before.",
    registry=REGISTRY,
)
DEAD_LETTERS = Counter("bakery_amqp_dead_letters", "Messages that this worker has dead-lettered.", registry=REGISTRY)

_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0  # before another attempt; each pause is four times as long as the last


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker consumes its queue."""

    queue: str
    prefetch: int  # messages that may be delivered and not yet acknowledged
    max_message_bytes: int  # size of the largest message that is processed
    batch_size: int  # messages that may be joined into one call; 1 turns joining off
    calls: int  # concurrent calls
    delivery_limit: int  # deliveries without a reply after which a message is dead-lettered
    # attempts during which the model server was unavailable, after which a message is dead-lettered
    retry_attempts: int
    result_queues: tuple[str, ...]  # where replies may go; see `errors.check_reply_queue`
    expiration_s: float | None  # seconds after which the broker drops a reply that nobody has fetched; None keeps it


class Settling:
    """Ends the messages of one channel: publishes `replies`, and `copies` of messages to other queues."""

    def __init__(self, replies: Publisher, copies: Publisher, options: WorkerOptions) -> None:
        self._replies = replies
        self._copies = copies
        self._options = options
        self.pending = 0  # messages that were delivered and are not yet acknowledged
        self.idle = asyncio.Event()  # set while there are none
        self.idle.set()

    def add(self) -> None:
        """Count a message that was delivered."""
        self.pending += 1
        self.idle.clear()

    async def retry_after_pause(self, message: AbstractIncomingMessage, error: StatusError) -> None:
        """Retry a message for which the backend was unavailable or busy, unless its attempts are used up."""
        attempts = header(message, amqp.ATTEMPTS) + 1
        if attempts >= self._options.retry_attempts:
            text = (
                f"the model server was unavailable or overloaded in {attempts} attempts (--retry-attempts), perhaps "
                f"because of the message, which was moved to the dead-letter queue; last error: {error}"
            )
            await self.fail(message, StatusError(Code.ABORTED, text))
            return
        pause_s = min(max(_FIRST_PAUSE_S * 4 ** (attempts - 1), error.retry_after_s or 0.0), _MAX_PAUSE_S)
        logger.warning(
            "%s; attempt %d of %d; retrying in %.0f s", error, attempts, self._options.retry_attempts, pause_s
        )
        await asyncio.sleep(pause_s)
        await self.retry(message, count_deliveries(message), attempts)

    async def retry(self, message: AbstractIncomingMessage, deliveries: int, attempts: int) -> None:
        """Move a message to the end of the retry queue."""
        counts = {amqp.DELIVERIES: deliveries, amqp.ATTEMPTS: attempts}
        copy = queues.copy(message, counts, without_expiration=False)
        try:
            await self._copies.publish(copy, queues.retry_queue(self._options.queue))
        except RefusedError as error:
            await self.dead_letter(message, str(error))
        else:
            await self._settle(message.ack())

    async def fail(self, message: AbstractIncomingMessage, error: StatusError) -> None:
        """Reply with an error and dead-letter the message."""
        await self.finish(message, encode_failure(error, message.content_type or "", dead_letter=True))

    async def finish(self, message: AbstractIncomingMessage, response: Response) -> None:
        """Publish the response, dead-letter the message if it has to be, and acknowledge it."""
        reason = await queues.reply(self._replies, message, response, self._options.expiration_s)
        MESSAGES.labels(response.error.code.name if response.error else "OK").inc()
        if response.dead_letter:
            reason = str(response.error)
        if reason:
            await self.dead_letter(message, reason)
        else:
            await self._settle(message.ack())

    async def dead_letter(self, message: AbstractIncomingMessage, reason: str) -> None:
        """Move a message to the dead-letter queue, with the reason."""
        logger.warning("dead-lettering a message: %s", reason)
        copy = queues.copy(message, {amqp.REASON: reason})
        try:
            await self._copies.publish(copy, queues.dead_queue(self._options.queue))
        except RefusedError as error:
            logger.warning("the broker dead-letters the message itself, without the reason: %s", error)
            await self._settle(message.reject())
        else:
            await self._settle(message.ack())
        DEAD_LETTERS.inc()

    async def _settle(self, settling: Awaitable[None]) -> None:
        await settling
        self.pending -= 1
        if not self.pending:
            self.idle.set()


def count_deliveries(message: AbstractIncomingMessage) -> int:
    """Number of earlier deliveries that ended without acknowledgement, from the worker's queue and the retry queue."""
    return header(message, amqp.DELIVERY_COUNT) + header(message, amqp.DELIVERIES)


def header(message: AbstractIncomingMessage, name: str) -> int:
    """Return a count that the broker or a worker has set; 0 without it. A publisher may have set it to anything."""
    value = message.headers.get(name, 0)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0
