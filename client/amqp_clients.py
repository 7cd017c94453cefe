"""The clients for RabbitMQ, blocking and for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE
from savedmodel_bakery.client.aio import BaseAsyncClient
from savedmodel_bakery.client.calls import Call, ModelSpec, Result, first_cause
from savedmodel_bakery.client.client import BaseClient
from savedmodel_bakery.client.servers import check_timeout
from savedmodel_bakery.defaults import DEFAULT_MODEL
from savedmodel_bakery.errors import ClientError
from savedmodel_bakery.extras import naming_extras
from savedmodel_bakery.wire.amqp import DEFAULT_QUEUE

if TYPE_CHECKING:
    from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport


class AmqpClient(BaseClient):
    """Calls workers through a RabbitMQ broker. A context manager; not for use by several threads at once.

    Needs the extra `amqp`. A call that cannot reach the broker, or that a full queue rejects, is retried up to three
    times within `timeout_s`. Nothing is connected before the first call.

    Args:
        target: HOST or HOST:PORT of the broker, or its URL, `amqp[s]://USER:PASSWORD@HOST:PORT/VHOST`, for TLS with
            `?cafile=…&certfile=…&keyfile=…` if needed.
        queue: the queue from which the workers consume.
        timeout_s: time limit of a call in seconds, above 0 and at most a day.
        model: name of the model; by default `efficientnet_lite0`, the demo's.
        version: version number; the newest by default.
        label: version label.

    Examples:
        >>> import numpy as np
        >>> from savedmodel_bakery import AmqpClient
        >>> with AmqpClient("amqp://guest:guest@127.0.0.1/", model="half_plus_two") as client:
        ...     client.predict({"x": np.array([1, 2, 5], np.float32)}).arrays["y"]
        ...     correlation_id = client.submit({"x": np.array([8], np.float32)}, result_queue="results")
        ...     [(found == correlation_id, reply.arrays["y"]) for found, reply in client.results("results", idle_s=2)]
        array([2.5, 3. , 4.5], dtype=float32)
        [(True, array([6.], dtype=float32))]

    Raises:
        ModuleNotFoundError: the extra `amqp` is not installed.
        ValueError: an argument is invalid.
    """

    def __init__(
        self,
        target: str = "127.0.0.1",
        *,
        queue: str = DEFAULT_QUEUE,
        timeout_s: float = 30.0,
        model: str = DEFAULT_MODEL,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        spec = ModelSpec(model, version, label)
        self._amqp = _BlockingTransport(_create_transport(target, queue=queue, timeout_s=timeout_s))
        super().__init__(spec, self._amqp)

    def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        result_queue: str,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        expiration_s: float | None = None,
    ) -> str:
        """Publish a request to run a signature on arrays, and have its reply sent to a queue.

        Returns when the broker has confirmed the request. It does not need a running worker, so the inputs are not
        checked against the model's metadata.

        Args:
            inputs: the arrays, as `predict` takes them, except that numbers become numpy's default types.
            result_queue: name of a durable quorum queue, which is created if it does not exist; see `results`.
                The workers must allow it (`--result-queue`, by default all names that start with `results`).
            signature: name of the signature.
            output_filter: aliases of the outputs to return; empty for all.
            expiration_s: seconds that the request may wait for a worker; None for no limit.

        Returns:
            The correlation id, which the reply will have too.

        Raises:
            ClientError: the call failed.
            ValueError: an input is not an array.
        """
        self._check_open()
        call = self._flows.unchecked_predict(inputs, signature=signature, output_filter=output_filter)
        try:
            submitted = self._amqp.transport.submit(call, result_queue=result_queue, expiration_s=expiration_s)
            return self._amqp.run(submitted)
        except ClientError as exc:
            raise exc.with_traceback(None) from first_cause(exc)

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies to submitted requests until none arrives for `idle_s` seconds.

        A reply is acknowledged when the next one is requested. A reply that is not acknowledged is delivered again, so
        the same reply may be returned twice.

        Args:
            result_queue: the queue that `submit` named.
            idle_s: seconds to wait for another reply.

        Returns:
            The correlation id of each reply, and what `predict` would have returned or raised.

        Raises:
            ClientError: the broker cannot be reached, or refuses.
        """
        self._check_open()
        return self._amqp.results(result_queue, idle_s=idle_s)


class AsyncAmqpClient(BaseAsyncClient):
    """Calls workers through a RabbitMQ broker, with any number of calls at the same time.

    An asynchronous context manager, for one event loop. For the arguments see `AmqpClient`.

    Examples:
        >>> import asyncio
        >>> import numpy as np
        >>> from savedmodel_bakery import AsyncAmqpClient
        >>> async def halve(number):
        ...     async with AsyncAmqpClient("amqp://guest:guest@127.0.0.1/", model="half_plus_two") as client:
        ...         return (await client.predict({"x": np.array([number], np.float32)})).arrays["y"]
        >>> asyncio.run(halve(3))
        array([3.5], dtype=float32)
    """

    def __init__(
        self,
        target: str = "127.0.0.1",
        *,
        queue: str = DEFAULT_QUEUE,
        timeout_s: float = 30.0,
        model: str = DEFAULT_MODEL,
        version: int | None = None,
        label: str | None = None,
    ) -> None:
        spec = ModelSpec(model, version, label)
        self._amqp = _create_transport(target, queue=queue, timeout_s=timeout_s)
        super().__init__(spec, self._amqp)

    async def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        result_queue: str,
        signature: str = DEFAULT_SIGNATURE,
        output_filter: Sequence[str] = (),
        expiration_s: float | None = None,
    ) -> str:
        """Publish a request whose reply is sent to a queue; see `AmqpClient.submit`."""
        self._check_open()
        call = self._flows.unchecked_predict(inputs, signature=signature, output_filter=output_filter)
        try:
            return await self._amqp.submit(call, result_queue=result_queue, expiration_s=expiration_s)
        except ClientError as exc:
            raise exc.with_traceback(None) from first_cause(exc)

    def results(self, result_queue: str, *, idle_s: float) -> AsyncIterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies to submitted requests; see `AmqpClient.results`."""
        self._check_open()
        return self._amqp.results(result_queue, idle_s=idle_s)


def _create_transport(target: str, *, queue: str, timeout_s: float) -> AmqpAioTransport:
    check_timeout(timeout_s)
    with naming_extras("AMQP", "amqp"):
        from savedmodel_bakery.client.transports.amqp_aio import AmqpAioTransport
        from savedmodel_bakery.client.transports.amqp_broker import Broker
    return AmqpAioTransport(Broker.parse(target), queue=queue, timeout_s=timeout_s)


class _BlockingTransport:
    """An AmqpAioTransport on an event loop in a thread, so heartbeats continue while the caller does other things."""

    def __init__(self, transport: AmqpAioTransport) -> None:
        self.transport = transport
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="amqp", daemon=True)
        self._thread.start()

    def send(self, call: Call) -> Any:
        """Publish a call and wait for its reply; see `Transport.send`."""
        return self.run(self.transport.send(call))

    def results(self, result_queue: str, *, idle_s: float) -> Iterator[tuple[str, Prediction | ClientError]]:
        """Consume the replies in a queue; see `AmqpAioTransport.results`."""
        replies = self.transport.results(result_queue, idle_s=idle_s)

        async def receive() -> tuple[str, Prediction | ClientError] | None:
            return await anext(replies, None)

        try:
            while (reply := self.run(receive())) is not None:
                yield reply
        finally:
            self.run(replies.aclose())

    def close(self) -> None:
        """Close the connection and end the thread; closing again has no effect."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(ClientError):
            self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await self.transport.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:  # aio-pika's own
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
