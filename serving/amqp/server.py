"""The worker: works off the queue, over as many connections to the broker as that takes.

The event loop does nothing but talk to the broker, so that heartbeats go on whatever a model does. A message is on the
broker until the broker has its answer, so a worker may be killed at any time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from aio_pika.abc import AbstractConnection

from savedmodel_bakery.client.errors import ClientError, RequestRefusedError
from savedmodel_bakery.client.transports.amqp_broker import Broker
from savedmodel_bakery.serving.amqp import queues
from savedmodel_bakery.serving.amqp.decoding import Message
from savedmodel_bakery.serving.amqp.errors import Answer
from savedmodel_bakery.serving.amqp.session import Session, WorkerOptions, first, pauses

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 30.0


class Worker:
    """Works until it is told to stop, over as many connections as that takes.

    Args:
        broker: whom it works for.
        answer: answers messages, on a thread; see `Handlers.answer`.
        options: how it works.
    """

    def __init__(
        self, broker: Broker, answer: Callable[[Sequence[Message]], list[Answer]], options: WorkerOptions
    ) -> None:
        self._broker = broker
        self._answer = answer
        self._options = options
        self._threads = ThreadPoolExecutor(options.calls, thread_name_prefix="amqp")

    async def run(self, stop: asyncio.Event) -> None:
        """Work; return when told to stop and what was in hand is answered, or the grace is over.

        A broker that can't be reached, or was lost, is tried again for ever; one that refuses is not.

        Raises:
            RequestRefusedError: the broker doesn't let this user in, or do what a worker does, or the queue is there
                otherwise.
        """
        has_worked = False
        waits = pauses()
        while not stop.is_set():
            try:
                connection = await self._connect(stop)
                if connection is None:
                    return
                async with connection:
                    with self._broker.naming_errors():
                        session = await self._open(connection)
                        has_worked, waits = True, pauses()
                        await session.work(stop)
            except ClientError as error:
                if stop.is_set():
                    return
                if isinstance(error, RequestRefusedError) and not has_worked:
                    raise
                pause_s = next(waits)
                logger.warning("%s; trying again in %.1f s", error, pause_s)
                await first(stop, timeout_s=pause_s)

    async def _connect(self, stop: asyncio.Event) -> AbstractConnection | None:
        """Connect; None where it is told to stop meanwhile."""
        connecting = asyncio.ensure_future(self._broker.connect("bakery worker", timeout_s=_CONNECT_TIMEOUT_S))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((connecting, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if connecting.done():
            return connecting.result()
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        return None

    async def _open(self, connection: AbstractConnection) -> Session:
        channel = await connection.channel(on_return_raises=True)
        queue = await queues.declare(channel, self._options.queue, delivery_limit=self._options.delivery_limit)
        session = Session(channel, queue, self._answer, self._options, self._threads)
        logger.info("Working on queue %s of %s ...", self._options.queue, self._broker.endpoint.address)
        return session
