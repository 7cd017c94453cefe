"""Questions over RabbitMQ. Must not know gRPC; messages are for `grpc_messages`, the broker for `amqp_broker`.

Answers come to an exclusive queue of this connection, not by direct reply-to: only of a queue does the broker confirm
to the worker that it holds the answer, and say that its caller is gone. A question that is delivered again after its
worker was killed may be answered twice; by its correlation id the first answer counts, and others are dropped.

One connection, on an event loop in a thread of its own: so heartbeats go on while the caller does other things, and
waiting for an answer is waiting for a future.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Awaitable, Coroutine, Iterator
from typing import Any, TypeVar

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
)

from savedmodel_bakery.client.calls import ModelSpec, Predict, Question
from savedmodel_bakery.client.errors import (
    ClientError,
    ConnectionFailedError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.client.results import Prediction
from savedmodel_bakery.client.transports import grpc_codec as grpc_messages
from savedmodel_bakery.client.transports.amqp_broker import ERRORS, Broker
from savedmodel_bakery.client.transports.transport import deadline_exceeded
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code

Result = TypeVar("Result")

_RESULTS_AT_A_TIME = 16
_CLOSE_TIMEOUT_S = 1.0  # a broker that is short of memory does not read that we are going

_Arrived = asyncio.Queue[AbstractIncomingMessage | Exception]
"""Answers, and last what ended their coming."""


class _Link:
    """A connection that is open, and who waits for answers over it."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, replies: AbstractQueue) -> None:
        self.connection = connection
        self.channel = channel
        self.replies = replies
        self.waiting: dict[str, asyncio.Future[AbstractIncomingMessage]] = {}
        channel.close_callbacks.add(self._fail)

    @property
    def is_open(self) -> bool:
        return not self.channel.is_closed

    async def receive(self, message: AbstractIncomingMessage) -> None:
        """Hand an answer over; nobody waits for one that came before, or too late."""
        waiter = self.waiting.pop(message.correlation_id or "", None)
        if waiter is not None and not waiter.done():
            waiter.set_result(message)

    def _fail(self, _channel: Any, error: BaseException | None) -> None:
        for waiter in self.waiting.values():
            if not waiter.done():
                waiter.set_exception(_lost(error))


class _NotTakenError(RequestRefusedError):
    """The broker has not taken a message: its queue is full, or was made a moment ago."""


class AmqpTransport:
    """One connection to a broker, which is made anew where it was lost."""

    def __init__(self, broker: Broker, *, queue: str, timeout_s: float) -> None:
        self._broker = broker
        self._queue = queue
        self._timeout_s = timeout_s
        self._link: _Link | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="amqp", daemon=True)
        self._thread.start()

    def ask(self, question: Question) -> Any:
        """Put a question; see `Transport.ask`."""
        answer = self._run(self._ask(_message(question, expiration_s=self._timeout_s)))
        return _decode(question, answer)

    def submit(self, question: Question, *, result_queue: str, expiration_s: float | None) -> str:
        """Put a question whose answer goes to a queue; return its correlation id when the broker has it."""
        message = _message(question, expiration_s=expiration_s)
        self._run(self._submit(message, result_queue))
        assert message.correlation_id is not None
        return message.correlation_id

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Take answers out of such a queue; see `Client.results`."""
        channel, arrived = self._run(self._consume(result_queue))
        try:
            while (message := self._run(_next(arrived, idle_s))) is not None:
                yield message.correlation_id or "", _result(message)
                self._run(message.ack())
        finally:
            self._run(_close(channel))

    def close(self) -> None:
        """Close the connection, and end the thread; closing again does nothing."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(ClientError):
            self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with self._broker.naming_errors():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _close(self) -> None:
        if self._link is not None and self._link.is_open:
            await _close(self._link.connection)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:  # the library's own
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _ask(self, message: aio_pika.Message) -> AbstractIncomingMessage:
        """Publish and wait; what was lost with its connection, or not taken, is put again, three times at most."""
        end = self._loop.time() + self._timeout_s
        again = AsyncRetrying(
            retry=retry_if_exception_type(
                (ConnectionFailedError, ConnectionError, exceptions.ChannelInvalidStateError, _NotTakenError)
            ),
            wait=wait_exponential(multiplier=0.1),
            stop=stop_after_attempt(4) | stop_before_delay(self._timeout_s),
            reraise=True,
        )
        return await again(self._exchange, message, end)

    async def _exchange(self, message: aio_pika.Message, end: float) -> AbstractIncomingMessage:
        link = await self._open(end)
        message.reply_to = link.replies.name
        assert message.correlation_id is not None
        link.waiting[message.correlation_id] = waiter = self._loop.create_future()
        try:
            await self._publish(link.channel, message, end)
            return await self._in_time(waiter, end)
        finally:
            link.waiting.pop(message.correlation_id, None)

    async def _submit(self, message: aio_pika.Message, result_queue: str) -> None:
        end = self._loop.time() + self._timeout_s
        link = await self._open(end)
        await self._in_time(_declare_results(link.channel, result_queue), end)
        message.reply_to = result_queue
        await self._publish(link.channel, message, end)

    async def _in_time(self, work: Awaitable[Result], end: float) -> Result:
        try:
            return await asyncio.wait_for(work, end - self._loop.time())
        except asyncio.TimeoutError:
            raise deadline_exceeded([self._broker.endpoint], self._timeout_s) from None

    async def _publish(self, channel: AbstractChannel, message: aio_pika.Message, end: float) -> None:
        """Return when the broker has it; one that is short of memory or disk may let us wait."""
        if len(message.body) > amqp.MAX_MESSAGE_BYTES:
            raise RequestRefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"the request takes {len(message.body)} bytes; "
                f"a message of RabbitMQ holds {amqp.MAX_MESSAGE_BYTES} at most",
            )
        try:
            await self._in_time(channel.default_exchange.publish(message, self._queue, mandatory=True), end)
        except exceptions.PublishError as exc:
            raise RequestRefusedError(
                Code.NOT_FOUND,
                f'there is no queue "{self._queue}" on {self._broker.endpoint.address}; the first worker makes it',
            ) from exc
        except exceptions.DeliveryError as exc:
            raise _NotTakenError(Code.UNAVAILABLE, f'queue "{self._queue}" takes no more messages now') from exc

    async def _consume(self, result_queue: str) -> tuple[AbstractChannel, _Arrived]:
        end = self._loop.time() + self._timeout_s
        link = await self._open(end)
        channel = await self._in_time(link.connection.channel(), end)
        try:
            return channel, await self._in_time(_consume_results(channel, result_queue), end)
        except BaseException:
            await _close(channel)
            raise

    async def _open(self, end: float) -> _Link:
        """The connection, which is made where there is none."""
        if self._link is None or not self._link.is_open:
            timeout_s = max(end - self._loop.time(), 0.001)
            connection = await self._broker.connect("bakery client", timeout_s=timeout_s)
            try:
                self._link = await self._in_time(_link_over(connection), end)
            except BaseException:
                await _close(connection)
                raise
        return self._link


async def _link_over(connection: AbstractConnection) -> _Link:
    channel = await connection.channel(on_return_raises=True)
    replies = await channel.declare_queue(exclusive=True)
    link = _Link(connection, channel, replies)
    await replies.consume(link.receive, no_ack=True)
    return link


async def _consume_results(channel: AbstractChannel, result_queue: str) -> _Arrived:
    arrived: _Arrived = asyncio.Queue()
    channel.close_callbacks.add(lambda _, error: arrived.put_nowait(_lost(error)))
    await channel.set_qos(prefetch_count=_RESULTS_AT_A_TIME)
    queue = await _declare_results(channel, result_queue)
    await queue.consume(arrived.put)
    return arrived


async def _declare_results(channel: AbstractChannel, name: str) -> AbstractQueue:
    return await channel.declare_queue(name, durable=True, arguments=dict(amqp.QUORUM_ARGUMENTS))


async def _next(arrived: _Arrived, idle_s: float) -> AbstractIncomingMessage | None:
    try:
        found = await asyncio.wait_for(arrived.get(), idle_s)
    except asyncio.TimeoutError:
        return None
    if isinstance(found, Exception):
        raise found
    return found


async def _close(opened: AbstractConnection | AbstractChannel) -> None:
    """Close it, as far as the broker listens."""
    with contextlib.suppress(*ERRORS):
        await asyncio.wait_for(opened.close(), _CLOSE_TIMEOUT_S)


def _lost(error: BaseException | None) -> Exception:
    return error if isinstance(error, Exception) else ConnectionError()


def _message(question: Question, *, expiration_s: float | None) -> aio_pika.Message:
    return aio_pika.Message(
        grpc_messages.encode_request(question),
        content_type=amqp.PROTOBUF,
        type=grpc_messages.method_of(question).request.DESCRIPTOR.full_name,
        correlation_id=uuid.uuid4().hex,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        expiration=expiration_s,
    )


def _result(message: AbstractIncomingMessage) -> Prediction | ClientError:
    """What came of a question that is not at hand any more; its answer tells model and signature."""
    try:
        prediction: Prediction = _decode(Predict(ModelSpec("unknown"), "unknown", {}, (), None), message)
        return prediction
    except ClientError as exc:
        return exc


def _decode(question: Question, message: AbstractIncomingMessage) -> Any:
    try:
        error = amqp.read_status(message.headers)
    except (ValueError, TypeError) as exc:
        raise InvalidResponseError(f"{len(message.body)} bytes came without the status of an answer") from exc
    if error is None and message.content_type != amqp.PROTOBUF:
        raise InvalidResponseError(f"{message.content_type or 'no content type'} came; the answer is {amqp.PROTOBUF}")
    if error is None:
        return grpc_messages.decode_answer(question, message.body)
    if error.code is Code.DEADLINE_EXCEEDED:
        raise DeadlineExceededError(error.message)
    raise RequestRefusedError(error.code, error.message)
