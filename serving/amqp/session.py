"""The messages in hand: had answered on threads, and acknowledged when the broker has what came of them.

A message that ends its worker comes back, and so does all that was in hand beside it; each time counts against them. So
that none pays for another, a worker that meets what came back, as every worker may when it begins, takes in one message
at a time, until a fresh one shows that no more of it waits.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from savedmodel_bakery.client.errors import ConnectionFailedError
from savedmodel_bakery.client.transports.amqp_broker import ERRORS
from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.decoding import Message
from savedmodel_bakery.serving.amqp.errors import Answer, exhausted, refusal
from savedmodel_bakery.serving.amqp.prefetch import Inbox, delivery_count
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

Result = TypeVar("Result")

logger = logging.getLogger(__name__)

GRACE_S = 25.0
"""How long messages in hand may take after SIGTERM; a pod gets 30 s between SIGTERM and SIGKILL by default."""

_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker works.

    Attributes:
        queue: where messages come from.
        prefetch: messages that it has in hand, those that wait for others included.
        batch: messages that are joined into one call; 1 is none.
        calls: calls at the same time.
        delivery_limit: times that a message may come back before it is given up.
        expiration_s: seconds that an answer is kept for its caller; None is for ever.
    """

    queue: str
    prefetch: int
    batch: int
    calls: int
    delivery_limit: int
    expiration_s: float | None


class Session:
    """The messages in hand over one channel; when it is lost, so are they, and are delivered again over another."""

    def __init__(
        self,
        channel: AbstractChannel,
        queue: AbstractQueue,
        answer: Callable[[Sequence[Message]], list[Answer]],
        options: WorkerOptions,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._channel = channel
        self._queue = queue
        self._answer = answer
        self._options = options
        self._threads = threads
        self._inbox = Inbox()
        self._places = asyncio.Semaphore(options.calls)
        self._tasks: set[asyncio.Task[None]] = set()
        self._tag = ""
        self._careful = True
        self._turn = asyncio.Event()
        self._lost = asyncio.Event()
        channel.close_callbacks.add(lambda *_: self._lost.set())

    async def work(self, stop: asyncio.Event) -> None:
        """Work until told to stop, and until what is in hand is answered; or until the channel is lost."""
        self._spawn(self._dispatch())
        try:
            while not (stop.is_set() or self._lost.is_set()):
                await self._take_in(stop)
            if not self._lost.is_set():
                logger.info("Finishing %d messages in hand ...", len(self._inbox))
                await first(self._inbox.idle, self._lost, timeout_s=GRACE_S)
        finally:
            for task in self._tasks:
                task.cancel()
        if self._inbox:
            logger.warning("%d messages go back to queue %s unanswered", len(self._inbox), self._options.queue)
        if self._lost.is_set():
            raise ConnectionFailedError("the broker, or the way there, was lost")

    async def _take_in(self, stop: asyncio.Event) -> None:
        """Take messages in, one at a time or as many as may be in hand, until that has to change; settle those."""
        self._turn.clear()
        await self._channel.set_qos(prefetch_count=1 if self._careful else self._options.prefetch)
        self._tag = await self._queue.consume(self._receive)
        self._spawn(self._watch(self._tag))
        await first(stop, self._lost, self._turn)
        if self._lost.is_set():
            return
        tag, self._tag = self._tag, ""
        await self._queue.cancel(tag)  # what comes until the broker has read this is received
        await first(stop, self._lost, self._inbox.idle)
        self._careful = not self._careful

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        count = delivery_count(message)
        if count:
            logger.info("a message comes again; it came back %d times of %d", count, self._options.delivery_limit)
        if self._careful != bool(count):
            self._turn.set()
        self._inbox.put(message)

    async def _watch(self, tag: str) -> None:
        """Notice that the broker has ended our consuming, as the queue was deleted; not every library tells."""
        channel: Any = await self._channel.get_underlay_channel()
        while tag in channel.consumers:
            await asyncio.sleep(1.0)
        if tag == self._tag:
            raise ConnectionError(f"queue {self._options.queue} was deleted")

    async def _dispatch(self) -> None:
        """Start calls while there is a place for one; what waits meanwhile is joined."""
        while True:
            await self._places.acquire()
            messages = await self._inbox.take(self._options.batch)
            self._spawn(self._ask(messages))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it meanwhile. Where it fails, all in hand is let go of, and delivered again."""

        async def guarded() -> None:
            try:
                await work
            except ERRORS as error:
                if not self._lost.is_set():
                    logger.warning("beginning anew: %s", error)
                    await self._channel.close()
            except Exception:
                incident.report(logger, "settling a message")
                await self._channel.close()

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, messages: list[AbstractIncomingMessage]) -> None:
        """Have messages answered; those that can't be answered now stay in hand, and are tried again."""
        try:
            loop, waiting = asyncio.get_running_loop(), []
            for message in messages:
                if error := self._hopeless(message):
                    self._spawn(self._settle(message, refusal(error, message.content_type or "", dead=True)))
                else:
                    waiting.append(message)
            for pause_s in pauses():
                asked = [_read(message) for message in waiting]
                answers = await loop.run_in_executor(self._threads, self._answer, asked)
                later = []
                for message, answer in zip(waiting, answers, strict=True):
                    if answer.error and answer.error.code is Code.UNAVAILABLE:
                        later.append((message, answer.error))
                    else:
                        self._spawn(self._settle(message, answer))
                if not later:
                    return
                waiting = [message for message, _ in later]
                logger.warning("%s; trying %d messages again in %.1f s", later[0][1], len(later), pause_s)
                await asyncio.sleep(pause_s)
        finally:
            self._places.release()

    def _hopeless(self, message: AbstractIncomingMessage) -> StatusError | None:
        """Why a message isn't worth a call."""
        if not message.reply_to:
            return invalid_argument("there is no reply_to that an answer could be sent to")
        count = delivery_count(message)
        return exhausted(count) if count >= self._options.delivery_limit else None

    async def _settle(self, message: AbstractIncomingMessage, answer: Answer) -> None:
        """Acknowledge a message when the broker has what came of it."""
        reply = aio_pika.Message(
            answer.body,
            headers=answer.headers,
            content_type=answer.content_type,
            type=answer.type,
            correlation_id=message.correlation_id,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            expiration=self._options.expiration_s,
        )
        nobody = await _until_taken(lambda: queues.reply(self._channel, message.reply_to, reply))
        reason = str(answer.error) if answer.dead else nobody
        if reason:
            logger.warning("a message goes to the dead letters: %s", reason)
            await _until_taken(lambda: queues.bury(self._channel, message, self._options.queue, reason))
        await message.ack()
        self._inbox.settle()


def _read(message: AbstractIncomingMessage) -> Message:
    return Message(message.body, message.content_type or "", message.type or "", message.headers)


async def _until_taken(publish: Callable[[], Awaitable[Result]]) -> Result:
    """Publish; what the broker doesn't take now, as a queue is full, is tried again."""
    for pause_s in pauses():
        try:
            return await publish()
        except exceptions.PublishError:
            raise
        except exceptions.DeliveryError as error:
            logger.warning("%s; trying again in %.1f s", error, pause_s)
            await asyncio.sleep(pause_s)
    raise AssertionError("pauses never end")


def pauses() -> Iterator[float]:
    """Seconds between attempts, without end."""
    for power in itertools.count():
        yield min(0.5 * 2.0 ** min(power, 10), _LONGEST_PAUSE_S) * random.uniform(0.75, 1.25)


async def first(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Return when one of them is set, or the time is over."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
