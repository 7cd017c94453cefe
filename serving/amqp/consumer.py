"""Consumes the worker's queues over one channel: prefetches messages, has their replies published, acknowledges.

A message is acknowledged after the broker has confirmed its reply, so no message is lost when a worker is killed.

The broker redelivers a message that crashed its worker together with the messages that were prefetched beside it, and
counts each redelivery. So that only the message at fault reaches the delivery limit, a worker moves redelivered
messages to the retry queue, from which each worker prefetches one message at a time. It finishes its moves before it
processes that message, because a crash would count another delivery of all that are being moved.

Messages for which the model server was unavailable go to the retry queue too, because one of them may have crashed it.
Such a message is called alone, and has a number of attempts. While the server is unreachable no attempt is made.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from savedmodel_bakery import tracing
from savedmodel_bakery.client.transports.amqp_broker import BROKER_ERRORS
from savedmodel_bakery.client.transports.amqp_properties import unreadable
from savedmodel_bakery.errors import ClientError, ConnectionFailedError
from savedmodel_bakery.serving import incident
from savedmodel_bakery.serving.amqp import queues, reply_queues
from savedmodel_bakery.serving.amqp.availability import Availability
from savedmodel_bakery.serving.amqp.codec import Message, Response
from savedmodel_bakery.serving.amqp.errors import (
    attempts_used_up,
    delivery_limit_reached,
    encode_failure,
    is_away,
    is_temporary,
    message_too_large,
    unsupported_encoding,
)
from savedmodel_bakery.serving.amqp.handlers import Handlers
from savedmodel_bakery.serving.amqp.publisher import Publisher, RefusedError
from savedmodel_bakery.serving.telemetry import worker
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import StatusError, invalid_argument

logger = logging.getLogger(__name__)

GRACE_S = 25.0
"""Time to finish prefetched messages after SIGTERM; a pod gets 30 s between SIGTERM and SIGKILL by default."""

_WATCH_INTERVAL_S = 1.0
_MOVES_LIMIT_S = 5.0  # how long a retried message waits for moves: a full retry queue takes none until it is processed
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 60.0  # before another attempt; each pause is four times as long as the last


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker consumes its queue.

    Attributes:
        queue: name of the queue.
        prefetch: messages that may be delivered and not yet acknowledged.
        max_message_bytes: size of the largest message that is processed.
        batch_size: messages that may be joined into one call; 1 turns joining off.
        calls: concurrent calls.
        delivery_limit: deliveries without a reply after which a message is dead-lettered.
        retry_attempts: attempts during which the model server was unavailable, after which a message is dead-lettered.
        result_queues: where replies may go; see `reply_queues.check`.
        expiration_s: seconds after which the broker drops a reply that nobody has fetched; None keeps it.
    """

    queue: str
    prefetch: int
    max_message_bytes: int
    batch_size: int
    calls: int
    delivery_limit: int
    retry_attempts: int
    result_queues: tuple[str, ...]
    expiration_s: float | None


class Consumer:
    """Processes the messages that arrive over one channel.

    If the channel is lost, the broker delivers the unacknowledged messages again.

    Args:
        channel: an open channel.
        replies: publishes replies.
        copies: publishes copies of messages to other queues.
        handlers: turn messages into responses, on worker threads.
        options: how to consume.
        threads: where `handlers` run.
        timeout: what the broker said when it closed an earlier channel of the worker; see `timeout` below.

    Attributes:
        timeout: what the broker said when it closed this channel, or an earlier one, because a message took longer than
            its `consumer_timeout`; empty if it has not.
        has_started: whether the broker has permitted to consume.
    """

    def __init__(
        self,
        channel: AbstractChannel,
        replies: Publisher,
        copies: Publisher,
        handlers: Handlers,
        options: WorkerOptions,
        threads: ThreadPoolExecutor,
        timeout: str = "",
    ) -> None:
        self.timeout = timeout
        self.has_started = False
        self._channel = channel
        self._replies = replies
        self._copies = copies
        self._handlers = handlers
        self._availability = Availability(handlers.check, threads)
        self._options = options
        self._threads = threads
        self._fresh: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._unacknowledged = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._free_calls = asyncio.Semaphore(options.calls)
        self._tasks: set[asyncio.Task[None]] = set()
        self._moves: set[asyncio.Task[None]] = set()  # of redelivered messages to the retry queue
        self._lost = asyncio.Event()
        self._loss = ""
        channel.close_callbacks.add(self._lose)

    async def run(self, declared: queues.Queues, stop: asyncio.Event) -> None:
        """Consume until `stop` is set, then finish the prefetched messages within the grace period.

        Raises:
            ConnectionFailedError: the channel was lost.
        """
        tags: dict[AbstractQueue, str] = {}
        try:
            self._spawn(self._dispatch())
            for queue, receive, prefetch in (  # first the queue whose redelivered messages are moved
                (declared.requests, self._receive, self._options.prefetch),
                (declared.retries, self._receive_again, 1),
            ):
                await self._channel.set_qos(prefetch_count=prefetch)  # of consumers that start after it
                tags[queue] = await queue.consume(receive)
            self.has_started = True
            watch = self._spawn(self._watch(list(tags.values())))
            await wait_first(stop.wait(), self._lost.wait())
            if not self._lost.is_set():
                watch.cancel()
                for queue, tag in tags.items():
                    await queue.cancel(tag)  # returns after the last delivery
                logger.info("Finishing %d prefetched messages ...", self._unacknowledged)
                await wait_first(self._idle.wait(), self._lost.wait(), timeout_s=GRACE_S)
        finally:
            for task in self._tasks:
                task.cancel()
        if self._unacknowledged:
            logger.warning("%d messages return to queue %s unprocessed", self._unacknowledged, self._options.queue)
        if self._lost.is_set():
            raise ConnectionFailedError(f"the broker, or the connection to it, was lost{self._loss}")

    def _lose(self, _channel: object, error: BaseException | None) -> None:
        """Note that the channel is closed."""
        self._loss = f": {error}" if error else ""
        if "delivery acknowledgement" in self._loss:
            self.timeout = str(error)
        self._lost.set()

    async def _watch(self, tags: Sequence[str]) -> None:
        """Raise when the broker ends a consumer because its queue was deleted; aio-pika before 10 has no callback."""
        channel: Any = await self._channel.get_underlay_channel()
        while all(tag in channel.consumers for tag in tags):
            await asyncio.sleep(_WATCH_INTERVAL_S)
        raise ConnectionError(f"queue {self._options.queue} was deleted")

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        deliveries = _header(message, amqp.DELIVERY_COUNT)
        if self._reject(message, deliveries):
            if deliveries:
                worker.REDELIVERIES.inc()
        elif deliveries:  # counted when it arrives from the retry queue
            move = self._spawn(self._retry(message, deliveries, attempts=0))
            self._moves.add(move)
            move.add_done_callback(self._moves.discard)
        else:
            self._fresh.put_nowait(message)

    async def _receive_again(self, message: AbstractIncomingMessage) -> None:
        """Receive a message from the retry queue."""
        worker.REDELIVERIES.inc()
        deliveries = _deliveries(message)
        if not self._reject(message, deliveries):
            logger.info(
                "a message is delivered again, after %d of %d deliveries and %d of %d attempts",
                deliveries, self._options.delivery_limit,
                _header(message, amqp.ATTEMPTS), self._options.retry_attempts,
            )  # fmt: skip
            self._spawn(self._process_alone(message))

    def _reject(self, message: AbstractIncomingMessage, deliveries: int) -> bool:
        """Register a message that was delivered before; dead-letter it if it isn't worth a call."""
        self._unacknowledged += 1
        self._idle.clear()
        error = reply_queues.check(message.reply_to, self._options.result_queues)
        if reason := unreadable(message):
            unread = invalid_argument(reason)
            self._spawn(self._dead_letter(message, str(unread)) if error else self._fail(message, unread))
        elif error:
            self._spawn(self._dead_letter(message, str(error)))
        elif error := unsupported_encoding(message.content_encoding):
            self._spawn(self._fail(message, error))
        elif len(message.body) > self._options.max_message_bytes:
            self._spawn(self._fail(message, message_too_large(len(message.body), self._options.max_message_bytes)))
        elif deliveries >= self._options.delivery_limit:
            self._spawn(self._fail(message, delivery_limit_reached(deliveries, self.timeout)))
        else:
            return False
        return True

    async def _dispatch(self) -> None:
        """Process messages while calls are free; messages that wait meanwhile are joined."""
        while True:
            messages = [await self._fresh.get()]
            await self._free_calls.acquire()  # only now: while no fresh message waits, retried ones use every call
            while len(messages) < self._options.batch_size and not self._fresh.empty():
                messages.append(self._fresh.get_nowait())
            self._spawn(self._process(messages, calls=1))

    async def _process_alone(self, message: AbstractIncomingMessage) -> None:
        """Process a message of the retry queue; without other calls beside it if it may crash the model server."""
        calls = self._options.calls if _header(message, amqp.ATTEMPTS) else 1
        for _ in range(calls):
            await self._free_calls.acquire()
        while self._moves:
            _, stuck = await asyncio.wait(self._moves, timeout=_MOVES_LIMIT_S)
            self._moves -= stuck
        await self._process([message], calls)

    async def _process(self, messages: Sequence[AbstractIncomingMessage], calls: int) -> None:
        """Reply to messages; those for which the backend is unavailable or busy are retried. Frees so many calls."""
        try:
            await self._availability.wait()
            requests = [_request(message) for message in messages]
            loop = asyncio.get_running_loop()
            with ExitStack() as stack:
                spans = [stack.enter_context(self._span(message)) for message in messages]
                run = contextvars.copy_context().run
                responses = await loop.run_in_executor(self._threads, run, self._handlers.handle, requests)
                for span, response in zip(spans, responses, strict=True):
                    if span is not None and response.error:
                        tracing.fail(span, response.error.code.name)
        finally:
            for _ in range(calls):
                self._free_calls.release()
        for message, response in zip(messages, responses, strict=True):
            if response.error and is_temporary(response.error):
                if is_away(response.error):
                    self._availability.doubt()
                self._spawn(self._retry_after_pause(message, response.error))
            else:
                self._spawn(self._finish(message, response))

    def _span(self, message: AbstractIncomingMessage) -> AbstractContextManager[Any]:
        """Return the span of a message; of several that are joined, the last is the parent of the call to a server."""
        queue = self._options.queue
        attributes = {"messaging.system": "rabbitmq", "messaging.destination.name": queue}
        parent = {key: value for key, value in message.headers.items() if isinstance(value, str)}
        return tracing.span(f"process {queue}", "CONSUMER", attributes, parent=parent)

    async def _retry_after_pause(self, message: AbstractIncomingMessage, error: StatusError) -> None:
        """Retry a message for which the backend was unavailable or busy, unless its attempts are used up."""
        attempts = _header(message, amqp.ATTEMPTS) + 1
        if attempts >= self._options.retry_attempts:
            await self._fail(message, attempts_used_up(attempts, error))
            return
        pause_s = min(max(_FIRST_PAUSE_S * 4 ** (attempts - 1), error.retry_after_s or 0.0), _MAX_PAUSE_S)
        logger.warning(
            "%s; attempt %d of %d; retrying in %.0f s", error, attempts, self._options.retry_attempts, pause_s
        )
        await asyncio.sleep(pause_s)
        await self._retry(message, _deliveries(message), attempts)

    async def _retry(self, message: AbstractIncomingMessage, deliveries: int, attempts: int) -> None:
        """Move a message to the end of the retry queue."""
        try:
            await queues.retry_while_full(
                queues.retry, self._copies, message, self._options.queue, deliveries, attempts
            )
        except RefusedError as error:
            await self._dead_letter(message, str(error))
        else:
            await self._acknowledge(message)

    async def _fail(self, message: AbstractIncomingMessage, error: StatusError) -> None:
        """Reply with an error and dead-letter the message."""
        await self._finish(message, encode_failure(error, message.content_type or "", dead_letter=True))

    async def _finish(self, message: AbstractIncomingMessage, response: Response) -> None:
        """Publish the response, dead-letter the message if it has to be, and acknowledge it."""
        reason = await queues.retry_while_full(
            queues.reply, self._replies, message, response, self._options.expiration_s
        )
        worker.MESSAGES.labels(response.error.code.name if response.error else "OK").inc()
        if response.dead_letter:
            reason = str(response.error)
        if reason:
            await self._dead_letter(message, reason)
        else:
            await self._acknowledge(message)

    async def _dead_letter(self, message: AbstractIncomingMessage, reason: str) -> None:
        logger.warning("dead-lettering a message: %s", reason)
        try:
            await queues.retry_while_full(queues.dead_letter, self._copies, message, self._options.queue, reason)
        except RefusedError as error:
            logger.warning("the broker dead-letters the message itself, without the reason: %s", error)
            await self._settle(message.reject())
        else:
            await self._acknowledge(message)
        worker.DEAD_LETTERS.inc()

    async def _acknowledge(self, message: AbstractIncomingMessage) -> None:
        await self._settle(message.ack())

    async def _settle(self, settling: Awaitable[None]) -> None:
        """Send the broker what becomes of a message."""
        await settling
        self._unacknowledged -= 1
        if not self._unacknowledged:
            self._idle.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run in the background. If it fails, close the channel, which releases all unacknowledged messages."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                if self._lost.is_set():
                    return
                if isinstance(error, (ClientError, *BROKER_ERRORS)):
                    logger.warning("closing the channel: %s", error)
                else:
                    incident.report(logger, "processing a message")
                await self._channel.close()

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _deliveries(message: AbstractIncomingMessage) -> int:
    """Number of earlier deliveries that ended without acknowledgement, from the worker's queue and the retry queue."""
    return _header(message, amqp.DELIVERY_COUNT) + _header(message, amqp.DELIVERIES)


def _header(message: AbstractIncomingMessage, name: str) -> int:
    """Return a count that the broker or a worker has set; 0 without it. A publisher may have set it to anything."""
    value = message.headers.get(name, 0)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def _request(message: AbstractIncomingMessage) -> Message:
    return Message(message.body, message.content_type or "", message.type or "", message.headers)


async def wait_first(*awaitables: Awaitable[Any], timeout_s: float | None = None) -> None:
    """Return when one of the awaitables is done or the time is up; cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
