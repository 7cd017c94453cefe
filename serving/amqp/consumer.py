"""Consumes the worker's queues over one channel: prefetches messages, has their replies published, acknowledges.

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
from typing import Any

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from savedmodel_bakery import tracing
from savedmodel_bakery.client.transports.amqp_broker import BROKER_ERRORS
from savedmodel_bakery.client.transports.amqp_frames import unreadable
from savedmodel_bakery.errors import ClientError, ConnectionFailedError
from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.backends import Availability
from savedmodel_bakery.serving.amqp.codec import Message, delivery_limit_reached, is_away, is_temporary
from savedmodel_bakery.serving.amqp.handlers import Handlers
from savedmodel_bakery.serving.amqp.publisher import Publisher
from savedmodel_bakery.serving.amqp.queues import check_reply_queue
from savedmodel_bakery.serving.amqp.settling import REDELIVERIES, Settling, WorkerOptions, count_deliveries, header
from savedmodel_bakery.serving.telemetry.requests import report_exception
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

GRACE_S = 25.0
"""Time to finish prefetched messages after SIGTERM; a pod gets 30 s between SIGTERM and SIGKILL by default."""

_PLAIN_ENCODINGS = {"", "identity", "binary", "us-ascii", "utf-8", "utf8"}  # some libraries always send one
_WATCH_INTERVAL_S = 1.0
_MOVES_LIMIT_S = 5.0  # how long a retried message waits for moves: a full retry queue takes none until it is processed


class Consumer:
    """Processes the messages that arrive over one channel.

    If the channel is lost, the broker delivers the unacknowledged messages again. `timeout` is what the broker said
    when it closed this channel, or an earlier one of the worker, because a message took longer than its
    `consumer_timeout`; empty if it has not. `has_started` is set when the broker has permitted to consume.
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
        self._handlers = handlers
        self._availability = Availability(handlers.check, threads)
        self._options = options
        self._threads = threads
        self._fresh: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._settling = Settling(replies, copies, options)
        self._free_calls = asyncio.Semaphore(options.calls)
        self._tasks: set[asyncio.Task[None]] = set()
        self._moves: set[asyncio.Task[None]] = set()  # of redelivered messages to the retry queue
        self._lost = asyncio.Event()
        self._loss = ""
        channel.close_callbacks.add(self._lose)

    async def run(self, declared: queues.Queues, stop: asyncio.Event) -> None:
        """Consume until `stop` is set, then finish the prefetched messages within the grace period."""
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
                logger.info("Finishing %d prefetched messages ...", self._settling.pending)
                await wait_first(self._settling.idle.wait(), self._lost.wait(), timeout_s=GRACE_S)
        finally:
            for task in self._tasks:
                task.cancel()
        if self._settling.pending:
            logger.warning("%d messages return to queue %s unprocessed", self._settling.pending, self._options.queue)
        if self._lost.is_set():
            raise ConnectionFailedError(f"the broker, or the connection to it, was lost{self._loss}")

    def _lose(self, _channel: object, error: BaseException | None) -> None:
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
        deliveries = header(message, amqp.DELIVERY_COUNT)
        if self._reject(message, deliveries):
            if deliveries:
                REDELIVERIES.inc()
        elif deliveries:  # counted when it arrives from the retry queue
            move = self._spawn(self._settling.retry(message, deliveries, attempts=0))
            self._moves.add(move)
            move.add_done_callback(self._moves.discard)
        else:
            self._fresh.put_nowait(message)

    async def _receive_again(self, message: AbstractIncomingMessage) -> None:
        REDELIVERIES.inc()
        deliveries = count_deliveries(message)
        if not self._reject(message, deliveries):
            logger.info(
                "a message is delivered again, after %d of %d deliveries and %d of %d attempts",
                deliveries, self._options.delivery_limit,
                header(message, amqp.ATTEMPTS), self._options.retry_attempts,
            )  # fmt: skip
            self._spawn(self._process_alone(message))

    def _reject(self, message: AbstractIncomingMessage, deliveries: int) -> bool:
        """Register a message that was delivered before; dead-letter it if it isn't worth a call."""
        self._settling.add()
        reason = unreadable(message)
        reply_error = check_reply_queue(message.reply_to, self._options.result_queues)
        error = invalid_argument(reason) if reason else reply_error or self._find_error(message, deliveries)
        if error is None:
            return False
        if reply_error:
            self._spawn(self._settling.dead_letter(message, str(error)))
        else:
            self._spawn(self._settling.fail(message, error))
        return True

    def _find_error(self, message: AbstractIncomingMessage, deliveries: int) -> StatusError | None:
        """Return why a message that can have a reply isn't worth a call."""
        encoding, size, max_size = message.content_encoding, len(message.body), self._options.max_message_bytes
        if encoding is not None and encoding.lower() not in _PLAIN_ENCODINGS:
            return invalid_argument(
                f'content_encoding "{encoding}" is not supported: must be utf-8, us-ascii, binary, identity or none'
            )
        if size > max_size:
            return StatusError(
                Code.RESOURCE_EXHAUSTED,
                f"the message has {size} bytes; at most {max_size} are allowed (--max-message-bytes)",
            )
        if deliveries >= self._options.delivery_limit:
            return delivery_limit_reached(deliveries, self.timeout)
        return None

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
        calls = self._options.calls if header(message, amqp.ATTEMPTS) else 1
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
            requests = [
                Message(message.body, message.content_type or "", message.type or "", message.headers)
                for message in messages
            ]
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
                self._spawn(self._settling.retry_after_pause(message, response.error))
            else:
                self._spawn(self._settling.finish(message, response))

    def _span(self, message: AbstractIncomingMessage) -> AbstractContextManager[Any]:
        """Return the span of a message; of several that are joined, the last is the parent of the call to a server."""
        queue = self._options.queue
        attributes = {"messaging.system": "rabbitmq", "messaging.destination.name": queue}
        parent = {key: value for key, value in message.headers.items() if isinstance(value, str)}
        return tracing.span(f"process {queue}", "CONSUMER", attributes, parent=parent)

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
                    report_exception(logger, "processing a message")
                await self._channel.close()

        task = asyncio.ensure_future(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def wait_first(*awaitables: Awaitable[Any], timeout_s: float | None = None) -> None:
    """Return when one of the awaitables is done or the time is up; cancel the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
