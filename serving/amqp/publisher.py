"""Publishes the worker's messages over connections of their own, and finds the message that the broker refuses.

The broker closes a channel, or even the connection, because of one message: one that is larger than it allows, or whose
routing key it can't handle. It does not say which, and whether it has the others that it has not confirmed. So messages
are not published over the connection that delivers requests, and each that is not confirmed is published again, alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from types import TracebackType

import aio_pika
from aio_pika import exceptions
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import ChannelAccessRefused, ConnectionFrameError, ConnectionInternalError, ConnectionSyntaxError

from savedmodel_bakery.client.transports.amqp_broker import BROKER_ERRORS, Broker

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 30.0
_MAX_PAUSE_S = 30.0
_REFUSALS = (exceptions.ChannelClosed, ConnectionFrameError, ConnectionInternalError, ConnectionSyntaxError)


class RefusedError(Exception):
    """The broker closes the channel or the connection because of a message."""


class Publisher:
    """Publishes messages to queues; connects when the first is published.

    At most `at_once` messages are published at the same time. With 1, no message arrives twice because of another. With
    `waits_for_room`, tries again while a queue is full.
    """

    def __init__(self, broker: Broker, name: str, *, at_once: int, waits_for_room: bool = False) -> None:
        self._broker = broker
        self._name = name
        self._waits_for_room = waits_for_room
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._opening = asyncio.Lock()
        self._turns = asyncio.Semaphore(at_once)
        self._alone = asyncio.Lock()

    async def publish(self, message: aio_pika.Message, queue: str) -> None:
        """Publish a message and return after the broker has confirmed it.

        Raises RefusedError if the broker refuses this message, aio-pika's PublishError if the queue does not exist, its
        DeliveryError if the queue is full and this publisher does not wait for room, and ClientError if the broker is
        unreachable or permits no connection.
        """
        pauses = growing_pauses(_MAX_PAUSE_S)
        while True:
            try:
                await self._publish(message, queue)
                return
            except exceptions.PublishError:
                raise
            except exceptions.DeliveryError as error:
                if not self._waits_for_room:
                    raise
                pause_s = next(pauses)
                logger.warning("%s; retrying publishing in %.1f s", error, pause_s)
                await asyncio.sleep(pause_s)

    async def _publish(self, message: aio_pika.Message, queue: str) -> None:
        async with self._turns:
            try:
                await _publish(await self._open(), message, queue)
            except exceptions.DeliveryError:
                raise
            except BROKER_ERRORS:  # perhaps because of another message
                await self._publish_alone(message, queue)

    async def _publish_alone(self, message: aio_pika.Message, queue: str) -> None:
        async with self._alone, await self._connect() as connection:
            try:
                await _publish(await connection.channel(on_return_raises=True), message, queue)
            except ChannelAccessRefused:  # of the user, not of the message
                raise
            except _REFUSALS as error:
                raise RefusedError(f"the broker refuses a message to {queue}: {error.args[-1]}") from error

    async def _open(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                await self.close()
                self._connection = await self._connect()
                self._channel = await self._connection.channel(on_return_raises=True)
            return self._channel

    async def _connect(self) -> AbstractConnection:
        return await self._broker.connect(self._name, timeout_s=_CONNECT_TIMEOUT_S)

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def growing_pauses(max_s: float) -> Iterator[float]:
    """Yield seconds to wait: half a second, then twice as long each time up to `max_s`.

    Each is up to a quarter shorter or longer, so that several workers do not try at the same time.
    """
    pause_s = 0.5
    while True:
        yield pause_s * random.uniform(0.75, 1.25)
        pause_s = min(2 * pause_s, max_s)


async def _publish(channel: AbstractChannel, message: aio_pika.Message, queue: str) -> None:
    await channel.default_exchange.publish(message, queue, mandatory=True)
