"""The AMQP worker: connects to the broker, consumes its queue, and reconnects when the connection is lost.

The event loop only talks to the broker; models run on threads. So heartbeats continue whatever a model does.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from aio_pika.abc import AbstractConnection
from prometheus_client import Gauge

from savedmodel_bakery.client.transports.amqp_broker import Broker
from savedmodel_bakery.errors import ClientError, RequestRefusedError
from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.consumer import Consumer, wait_first
from savedmodel_bakery.serving.amqp.handlers import Handlers
from savedmodel_bakery.serving.amqp.publisher import Publisher, growing_pauses
from savedmodel_bakery.serving.amqp.settling import WorkerOptions
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY

logger = logging.getLogger(__name__)

WAITING_MESSAGES = Gauge(
    "bakery_amqp_waiting_messages", "Messages in the queue that wait for a worker.", ("queue",), registry=REGISTRY
)
WAITING_DEAD_LETTERS = Gauge(
    "bakery_amqp_waiting_dead_letters", "Dead letters of the queue.", ("queue",), registry=REGISTRY
)
CONSUMERS = Gauge("bakery_amqp_consumers", "Workers of the queue.", ("queue",), registry=REGISTRY)

_CONNECT_TIMEOUT_S = 30.0
_MAX_PAUSE_S = 30.0
_MEASURE_INTERVAL_S = 5.0


class Worker:
    """Consumes one queue until it is stopped; with `measures_queue`, publishes the broker's counts of it as metrics."""

    def __init__(
        self, broker: Broker, handlers: Handlers, options: WorkerOptions, *, measures_queue: bool = False
    ) -> None:
        self._broker = broker
        self._handlers = handlers
        self._options = options
        self._measures_queue = measures_queue
        self._declared = asyncio.Event()
        self._threads = ThreadPoolExecutor(options.calls, thread_name_prefix="amqp")

    async def run(self, stop: asyncio.Event) -> None:
        """Consume until `stop` is set and the prefetched messages are finished, or the grace period is over.

        Retries for ever while the broker is unreachable. Once it has consumed, retries after a refusal too; before,
        raises RequestRefusedError if the broker rejects the user, lacks a permission for it, or has the queue with
        other arguments.
        """
        measuring = asyncio.ensure_future(self._measure()) if self._measures_queue else None
        try:
            await self._consume(stop)
        finally:
            if measuring:
                measuring.cancel()

    async def _consume(self, stop: asyncio.Event) -> None:
        has_consumed, pauses, timeout = False, growing_pauses(_MAX_PAUSE_S), ""
        while not stop.is_set():
            try:
                async with AsyncExitStack() as stack:
                    stack.enter_context(self._broker.translate_errors())
                    connection = await self._connect(stop)
                    if connection is None:
                        return
                    await stack.enter_async_context(connection)
                    channel = await connection.channel(on_return_raises=True)
                    declared = await queues.declare(
                        channel, self._options.queue, delivery_limit=self._options.delivery_limit
                    )
                    self._declared.set()
                    logger.info("Consuming queue %s of %s ...", self._options.queue, self._broker.endpoint.address)
                    replies = await stack.enter_async_context(self._publisher("replies", self._options.prefetch))
                    copies = await stack.enter_async_context(self._publisher("dead letters", 1))
                    consumer = Consumer(channel, replies, copies, self._handlers, self._options, self._threads, timeout)
                    try:
                        await consumer.run(declared, stop)
                    finally:
                        timeout = consumer.timeout
                        if consumer.has_started:
                            has_consumed, pauses = True, growing_pauses(_MAX_PAUSE_S)
            except ClientError as error:
                if stop.is_set():
                    return
                if isinstance(error, RequestRefusedError) and not has_consumed:
                    raise
                pause_s = next(pauses)
                logger.warning("%s; reconnecting in %.1f s", error, pause_s)
                await wait_first(stop.wait(), timeout_s=pause_s)

    def _publisher(self, name: str, at_once: int) -> Publisher:
        return Publisher(self._broker, f"bakery worker {name}", at_once=at_once, waits_for_room=True)

    async def _measure(self) -> None:
        """Read the counts of the queue from the broker every few seconds, over connections of their own."""
        await self._declared.wait()
        queue = self._options.queue
        is_available = True
        while True:
            try:
                connection = await self._broker.connect("bakery worker metrics", timeout_s=_CONNECT_TIMEOUT_S)
                async with connection:
                    with self._broker.translate_errors():
                        status = await queues.status(connection, queue, with_reasons=False)
                WAITING_MESSAGES.labels(queue).set(status.ready)
                WAITING_DEAD_LETTERS.labels(queue).set(status.dead)
                CONSUMERS.labels(queue).set(status.consumers)
                is_available = True
            except ClientError as error:  # the broker is away, or the queue was deleted
                for metric in (WAITING_MESSAGES, WAITING_DEAD_LETTERS, CONSUMERS):
                    metric.remove_by_labels({"queue": queue})
                if is_available:
                    logger.warning("no metrics of queue %s until the broker has them again: %s", queue, error)
                is_available = False
            await asyncio.sleep(_MEASURE_INTERVAL_S)

    async def _connect(self, stop: asyncio.Event) -> AbstractConnection | None:
        """Connect; return None if `stop` is set first."""
        connecting = asyncio.ensure_future(self._broker.connect("bakery worker", timeout_s=_CONNECT_TIMEOUT_S))
        await wait_first(connecting, stop.wait())
        return None if connecting.cancelled() else connecting.result()
