"""Calls over RabbitMQ: the blocking form of `amqp_aio`.

The connection lives on an event loop in its own thread, so heartbeats continue while the caller does other things.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.client.calls import Call
from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
from savedmodel_bakery.errors import ClientError

Result = TypeVar("Result")


class AmqpTransport:
    """An AmqpAioTransport on an event loop of its own; reconnects if the connection is lost."""

    def __init__(self, transport: AmqpAioTransport) -> None:
        self._transport = transport
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="amqp", daemon=True)
        self._thread.start()

    def send(self, call: Call) -> Any:
        """Publish a call and wait for its reply; see `Transport.send`."""
        return self._run(self._transport.send(call))

    def submit(self, call: Call, *, result_queue: str, expiration_s: float | None) -> str:
        """Publish a call whose reply goes to a queue; see `AmqpAioTransport.submit`."""
        return self._run(self._transport.submit(call, result_queue=result_queue, expiration_s=expiration_s))

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies in a queue; see `AmqpAioTransport.results`."""
        replies = self._transport.results(result_queue, idle_s=idle_s)

        async def receive() -> tuple[str, Prediction | ClientError] | None:
            return await anext(replies, None)

        try:
            while (reply := self._run(receive())) is not None:
                yield reply
        finally:
            self._run(replies.aclose())

    def close(self) -> None:
        """Close the connection and end the thread; closing again has no effect."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(ClientError):
            self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await self._transport.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:  # aio-pika's own
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
