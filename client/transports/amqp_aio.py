"""Calls over RabbitMQ, for asyncio. Must not know a gRPC channel; `grpc_codec` encodes the messages.

Replies go to an exclusive queue of this connection rather than to RabbitMQ's direct reply-to: only for a queue does the
broker confirm to the worker that it has the reply, and report that the caller is gone. A request that is redelivered
after its worker was killed may be answered twice: the first reply with its correlation id counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from savedmodel_bakery import tracing
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.client.calls import Call, ModelSpec, Predict
from savedmodel_bakery.client.transports import grpc_codec
from savedmodel_bakery.client.transports.amqp_broker import BROKER_ERRORS, Broker
from savedmodel_bakery.client.transports.failures import deadline_exceeded, send_with_retries_async
from savedmodel_bakery.errors import (
    ClientError,
    DeadlineExceededError,
    InvalidResponseError,
    RequestRefusedError,
)
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code

Result = TypeVar("Result")
_Deliveries = asyncio.Queue[AbstractIncomingMessage | Exception]
"""Messages, and at last the error that ended their delivery."""

_PREFETCHED_RESULTS = 16
_CLOSE_TIMEOUT_S = 1.0  # a broker that is short of memory does not read the closing frame
_UNKNOWN_CALL = Predict(ModelSpec("unknown"), "unknown", {}, (), None)


class _OpenConnection:
    """An open connection, its channel and reply queue, and the requests that wait for a reply."""

    def __init__(self, connection: AbstractConnection, channel: AbstractChannel, replies: AbstractQueue) -> None:
        self.connection = connection
        self.channel = channel
        self.replies = replies
        self.pending: dict[str, asyncio.Future[AbstractIncomingMessage]] = {}
        channel.close_callbacks.add(self._fail)

    @classmethod
    async def open(cls, connection: AbstractConnection) -> _OpenConnection:
        """Open a channel and a reply queue."""
        channel = await connection.channel(on_return_raises=True)
        opened = cls(connection, channel, await channel.declare_queue(exclusive=True))
        await opened.replies.consume(opened._receive, no_ack=True)
        return opened

    async def _receive(self, message: AbstractIncomingMessage) -> None:
        """Resolve the request's future; drop a second reply, or one that arrives too late."""
        future = self.pending.pop(message.correlation_id or "", None)
        if future is not None and not future.done():
            future.set_result(message)

    def _fail(self, _channel: Any, error: BaseException | None) -> None:
        for future in self.pending.values():
            if not future.done():
                future.set_exception(_as_exception(error))


class AmqpAioTransport:
    """One connection to a broker, for the event loop of the first call; reconnects if the connection is lost."""

    def __init__(self, broker: Broker, *, queue: str, timeout_s: float) -> None:
        self._broker = broker
        self._queue = queue
        self._timeout_s = timeout_s
        self._opened: _OpenConnection | None = None
        self._opening = asyncio.Lock()

    async def send(self, call: Call) -> Any:
        """Publish a call and wait for its reply; see `Transport.send`.

        Repeats a call up to three times if its connection was lost or the queue was full.
        """
        with self._span("CLIENT"):
            message, deadline = _encode(call, expiration_s=self._timeout_s), self._deadline()

            async def attempt(_timeout_s: float) -> AbstractIncomingMessage:
                with self._broker.translate_errors():
                    return await self._exchange(message, deadline)

            reply = await send_with_retries_async(attempt, end_s=time.monotonic() + self._timeout_s)
            return _decode(call, reply)

    def _span(self, kind: str) -> AbstractContextManager[Any]:
        attributes = {"messaging.system": "rabbitmq", "messaging.destination.name": self._queue}
        return tracing.span(f"send {self._queue}", kind, attributes)

    async def submit(self, call: Call, *, result_queue: str, expiration_s: float | None) -> str:
        """Publish a call whose reply goes to a queue; return its correlation id after the broker has confirmed it."""
        with self._span("PRODUCER"), self._broker.translate_errors():
            message, deadline = _encode(call, expiration_s=expiration_s), self._deadline()
            message.reply_to = result_queue
            opened = await self._open(deadline)
            await self._within(deadline, _declare_result_queue(opened.channel, result_queue))
            await self._publish(opened.channel, message, deadline)
        return message.correlation_id or ""

    async def results(
        self, result_queue: str, *, idle_s: float
    ) -> AsyncGenerator[tuple[str, Prediction | ClientError], None]:
        """Yield id and prediction or error of each reply in a queue, until none has arrived for `idle_s` seconds.

        A reply is acknowledged when the next one is requested, and is delivered again if that never happens.
        """
        with self._broker.translate_errors():
            channel, deliveries = await self._consume(result_queue)
            try:
                while (message := await _next(deliveries, idle_s)) is not None:
                    result: Prediction | ClientError
                    try:  # the reply itself names model and signature
                        result = _decode(_UNKNOWN_CALL, message)
                    except ClientError as exc:
                        result = exc
                    yield message.correlation_id or "", result
                    await message.ack()
            finally:
                await _close(channel)

    async def close(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            await _close(self._opened.connection)

    def _deadline(self) -> float:
        """The event loop's time at which a call that starts now has to be done."""
        return asyncio.get_running_loop().time() + self._timeout_s

    async def _within(self, deadline: float, work: Awaitable[Result]) -> Result:
        try:
            return await asyncio.wait_for(work, deadline - asyncio.get_running_loop().time())
        except asyncio.TimeoutError:
            raise deadline_exceeded([self._broker.endpoint], self._timeout_s) from None

    async def _exchange(self, message: aio_pika.Message, deadline: float) -> AbstractIncomingMessage:
        opened = await self._open(deadline)
        message.reply_to = opened.replies.name
        assert message.correlation_id is not None
        future = opened.pending[message.correlation_id] = asyncio.get_running_loop().create_future()
        try:
            await self._publish(opened.channel, message, deadline)
            return await self._within(deadline, future)
        finally:
            opened.pending.pop(message.correlation_id, None)

    async def _publish(self, channel: AbstractChannel, message: aio_pika.Message, deadline: float) -> None:
        """Publish and wait for the broker's confirmation; a broker that is short of memory or disk delays it."""
        if len(message.body) > amqp.MAX_MESSAGE_BYTES:
            raise RequestRefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"the request has {len(message.body)} bytes; "
                f"a RabbitMQ message may have at most {amqp.MAX_MESSAGE_BYTES}",
            )
        try:
            publishing = channel.default_exchange.publish(message, self._queue, mandatory=True)
            await self._within(deadline, publishing)
        except exceptions.PublishError as exc:
            raise RequestRefusedError(
                Code.NOT_FOUND,
                f'queue "{self._queue}" not found on {self._broker.endpoint.address}; the first worker creates it',
            ) from exc
        except exceptions.DeliveryError as exc:
            raise RequestRefusedError(Code.UNAVAILABLE, f'queue "{self._queue}" is full') from exc

    async def _consume(self, result_queue: str) -> tuple[AbstractChannel, _Deliveries]:
        deadline = self._deadline()
        opened = await self._open(deadline)
        channel = await self._within(deadline, opened.connection.channel())
        try:
            return channel, await self._within(deadline, _start_deliveries(channel, result_queue))
        except BaseException:
            await _close(channel)
            raise

    async def _open(self, deadline: float) -> _OpenConnection:
        """Return the open connection; connect if there is none."""
        async with self._opening:
            if self._opened is None or self._opened.channel.is_closed:
                timeout_s = max(deadline - asyncio.get_running_loop().time(), 0.001)
                connection = await self._broker.connect("bakery client", timeout_s=timeout_s)
                try:
                    self._opened = await self._within(deadline, _OpenConnection.open(connection))
                except BaseException:
                    await _close(connection)
                    raise
            return self._opened


async def _start_deliveries(channel: AbstractChannel, result_queue: str) -> _Deliveries:
    deliveries: _Deliveries = asyncio.Queue()
    channel.close_callbacks.add(lambda _, error: deliveries.put_nowait(_as_exception(error)))
    await channel.set_qos(prefetch_count=_PREFETCHED_RESULTS)
    queue = await _declare_result_queue(channel, result_queue)
    await queue.consume(deliveries.put)
    return deliveries


async def _declare_result_queue(channel: AbstractChannel, name: str) -> AbstractQueue:
    return await channel.declare_queue(name, durable=True, arguments=dict(amqp.QUORUM_ARGUMENTS))


async def _next(deliveries: _Deliveries, idle_s: float) -> AbstractIncomingMessage | None:
    try:
        delivery = await asyncio.wait_for(deliveries.get(), idle_s)
    except asyncio.TimeoutError:
        return None
    if isinstance(delivery, Exception):
        raise delivery
    return delivery


async def _close(resource: AbstractConnection | AbstractChannel) -> None:
    """Close a connection or channel, whether or not the broker responds."""
    with contextlib.suppress(*BROKER_ERRORS):
        await asyncio.wait_for(resource.close(), _CLOSE_TIMEOUT_S)


def _as_exception(error: BaseException | None) -> Exception:
    return error if isinstance(error, Exception) else ConnectionError()


def _encode(call: Call, *, expiration_s: float | None) -> aio_pika.Message:
    return aio_pika.Message(
        grpc_codec.encode_request(call),
        content_type=amqp.PROTOBUF,
        type=grpc_codec.method_of(call).request.DESCRIPTOR.full_name,
        correlation_id=uuid.uuid4().hex,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        expiration=expiration_s,
        headers={**tracing.headers()},
    )


def _decode(call: Call, message: AbstractIncomingMessage) -> Any:
    try:
        error = amqp.decode_status(message.headers)
    except (ValueError, TypeError) as exc:
        raise InvalidResponseError(f"the reply ({len(message.body)} bytes) has no valid {amqp.STATUS} header") from exc
    if error is None and message.content_type != amqp.PROTOBUF:
        raise InvalidResponseError(f'the reply has content type "{message.content_type}"; expected {amqp.PROTOBUF}')
    if error is None:
        return grpc_codec.decode_response(call, message.body)
    if error.code is Code.DEADLINE_EXCEEDED:
        raise DeadlineExceededError(error.message)
    raise RequestRefusedError(error.code, error.message)
