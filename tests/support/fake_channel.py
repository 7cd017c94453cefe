"""AMQP channels and connections in memory, and an event loop with virtual time. Does no network I/O.

Has the parts of aio-pika's interface that a worker uses. Delivered messages are aio-pika's own `IncomingMessage`.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import selectors
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec

from aio_pika import IncomingMessage, Message, exceptions
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from savedmodel_bakery.client.transports.amqp_frames import decodable_header
from savedmodel_bakery.serving.amqp.settling import WorkerOptions

Parameters = ParamSpec("Parameters")
Receive = Callable[[IncomingMessage], Awaitable[None]]
OPTIONS = WorkerOptions(
    queue="bakery.predict",
    prefetch=16,
    max_message_bytes=100,
    batch_size=1,
    calls=2,
    delivery_limit=3,
    retry_attempts=5,
    result_queues=("results*",),
    expiration_s=None,
)


class FakeQueue:
    """A queue.

    Attributes:
        published: all messages that were routed to the queue, as a consumer receives them.
        ready: the messages that were not delivered yet.
        max_length: number of ready and unacknowledged messages at which the queue rejects others; None is no limit.
        confirms: while it is clear, the broker confirms no message.
    """

    def __init__(self, channel: FakeChannel, name: str) -> None:
        self._channel = channel
        self.name = name
        self.published: list[IncomingMessage] = []
        self.ready: deque[Message] = deque()
        self.max_length: int | None = None
        self.confirms = asyncio.Event()
        self.confirms.set()

    async def consume(self, receive: Receive) -> str:
        """Deliver messages to `receive`, as many as the channel's prefetch count allows; return the consumer's tag."""
        return await self._channel.add_consumer(self, receive)

    async def cancel(self, tag: str) -> None:
        """End a consumer."""
        await self._channel.remove_consumer(tag)


@dataclass
class _Consumer:
    queue: FakeQueue
    receive: Receive
    prefetch: int
    unacknowledged: int = 0


class FakeChannel:
    """A channel, its default exchange and its queues; also stands in for the channel of aiormq below it.

    Args:
        refusal: raised when a queue is declared, or consumed, after which the channel is closed.
        refuses_to_consume: raise it when a queue is consumed.

    Attributes:
        consumers: by tag.
        acknowledged: queue and body of each acknowledged message.
        rejected: queue and body of each rejected message.
    """

    def __init__(self, refusal: Exception | None = None, *, refuses_to_consume: bool = False) -> None:
        self._refusal = refusal
        self._refuses_to_consume = refuses_to_consume
        self._prefetch = 0
        self._tags = itertools.count(1)
        self._unacknowledged: dict[int, tuple[_Consumer, bytes]] = {}
        self._receiving: set[asyncio.Future[None]] = set()
        self.queues: dict[str, FakeQueue] = {}
        self.consumers: dict[str, _Consumer] = {}
        self.acknowledged: list[tuple[str, bytes]] = []
        self.rejected: list[tuple[str, bytes]] = []
        self.close_callbacks: set[Callable[..., object]] = set()
        self.is_closed = False
        self.default_exchange = self

    async def get_underlay_channel(self) -> FakeChannel:
        """Return the channel of aiormq."""
        return self

    async def declare_queue(
        self, name: str, *, durable: bool = False, arguments: Mapping[str, Any] | None = None
    ) -> FakeQueue:
        """Return a queue, which is created unless it exists."""
        del durable, arguments
        await self._reach_broker()
        self._refuse(on_consuming=False)
        return self.queues.setdefault(name, FakeQueue(self, name))

    async def set_qos(self, *, prefetch_count: int) -> None:
        """Limit the unacknowledged messages of each consumer that starts later."""
        await self._reach_broker()
        self._prefetch = prefetch_count

    async def publish(self, message: Message, routing_key: str, *, mandatory: bool) -> None:
        """Put a message into a queue and return when the broker has confirmed it."""
        assert mandatory
        await self._reach_broker()
        queue = self.queues.get(routing_key)
        if queue is None:
            returned = Basic.Return(312, "NO_ROUTE", "", routing_key)
            raise exceptions.PublishError(_delivered(returned, message, self), returned)
        waiting = sum(consumer.queue is queue for consumer, _ in self._unacknowledged.values()) + len(queue.ready)
        if queue.max_length is not None and waiting >= queue.max_length:
            raise exceptions.DeliveryError(None, Basic.Nack())
        queue.published.append(IncomingMessage(_delivered(Basic.Deliver(), message, self)))
        queue.ready.append(message)
        self._deliver()
        await queue.confirms.wait()
        await self._reach_broker()

    async def basic_ack(self, *, delivery_tag: int, multiple: bool) -> None:
        """Acknowledge one message."""
        assert not multiple
        await self._reach_broker()
        self.acknowledged.append(self._settle(delivery_tag))
        self._deliver()

    async def basic_reject(self, delivery_tag: int, *, requeue: bool) -> None:
        """Have one message dead-lettered by the broker."""
        assert not requeue
        await self._reach_broker()
        self.rejected.append(self._settle(delivery_tag))
        self._deliver()

    def _settle(self, delivery_tag: int) -> tuple[str, bytes]:
        consumer, body = self._unacknowledged.pop(delivery_tag)
        consumer.unacknowledged -= 1
        return consumer.queue.name, body

    async def add_consumer(self, queue: FakeQueue, receive: Receive) -> str:
        """See `FakeQueue.consume`."""
        await self._reach_broker()
        self._refuse(on_consuming=True)
        tag = f"ctag{next(self._tags)}"
        self.consumers[tag] = _Consumer(queue, receive, self._prefetch)
        self._deliver()
        return tag

    async def remove_consumer(self, tag: str) -> None:
        """See `FakeQueue.cancel`."""
        await self._reach_broker()
        del self.consumers[tag]

    def delete_queue(self, name: str) -> None:
        """Delete a queue on the broker, which ends its consumers."""
        del self.queues[name]
        self.consumers = {tag: consumer for tag, consumer in self.consumers.items() if consumer.queue.name != name}

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.lose()

    def lose(self) -> None:
        """Close the channel at once, as the broker or an interrupted connection does."""
        if self.is_closed:
            return
        self.is_closed = True
        for queue in self.queues.values():
            queue.confirms.set()
        for callback in self.close_callbacks:
            callback(self, None)

    async def _reach_broker(self) -> None:
        await asyncio.sleep(0)
        if self.is_closed:
            raise exceptions.ChannelInvalidStateError("the channel is closed")

    def _refuse(self, *, on_consuming: bool) -> None:
        if self._refusal and self._refuses_to_consume is on_consuming:
            self.lose()
            raise self._refusal

    def _deliver(self) -> None:
        for tag, consumer in self.consumers.items():
            queue = consumer.queue
            while queue.ready and consumer.unacknowledged < consumer.prefetch:
                message = queue.ready.popleft()
                number = next(self._tags)
                self._unacknowledged[number] = consumer, message.body
                consumer.unacknowledged += 1
                delivery = Basic.Deliver(tag, number, False, "", queue.name)
                incoming = IncomingMessage(_delivered(delivery, message, self))
                receiving = asyncio.ensure_future(consumer.receive(incoming))
                self._receiving.add(receiving)
                receiving.add_done_callback(self._receiving.discard)


def _delivered(frame: Any, message: Message, channel: Any) -> DeliveredMessage:
    header = ContentHeader()
    header.unmarshal(decodable_header(ContentHeader(properties=message.properties).marshal()))
    return DeliveredMessage(frame, header, message.body, channel)


class FakeBroker:
    """Stands in for `Broker`: its connections publish to the queues of a channel.

    Args:
        channel: has the queues.

    Attributes:
        refusals: by queue: the error with which the broker closes a connection that publishes to it.
        connected: number of connections.
    """

    def __init__(self, channel: FakeChannel) -> None:
        self.channel = channel
        self.refusals: dict[str, Exception] = {}
        self.connected = 0

    async def connect(self, _name: str, *, timeout_s: float) -> FakePublishing:
        """Connect at once."""
        assert timeout_s
        self.connected += 1
        return FakePublishing(self)


class FakePublishing:
    """A connection of a FakeBroker, its only channel and the channel's exchange."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.default_exchange = self

    @property
    def is_closed(self) -> bool:
        return self._closed.done()

    async def channel(self, *, on_return_raises: bool) -> FakePublishing:
        assert on_return_raises
        return self

    async def publish(self, message: Message, routing_key: str, *, mandatory: bool) -> None:
        """Publish; messages that are not confirmed when the broker closes the connection fail with the same error."""
        if routing_key in self._broker.refusals and not self.is_closed:
            self._closed.set_exception(self._broker.refusals[routing_key])
        if self.is_closed:
            self._closed.result()
        publishing = asyncio.ensure_future(self._broker.channel.publish(message, routing_key, mandatory=mandatory))
        await asyncio.wait({publishing, self._closed}, return_when=asyncio.FIRST_COMPLETED)
        if self.is_closed:
            publishing.cancel()
            self._closed.result()
        await publishing

    async def close(self) -> None:
        if not self.is_closed:
            self._closed.set_exception(exceptions.ChannelInvalidStateError("closed"))
            self._closed.exception()

    async def __aenter__(self) -> FakePublishing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


Outcome = Exception | FakeChannel | float | None


class FakeConnections:
    """Stands in for the class `aio_pika.Connection`.

    Args:
        outcomes: of the attempts to connect, one each; the last one repeats. An exception is raised. None is a broker
            that never responds. A channel is the one that the connection opens. A number is the time in seconds after
            which the connection, which opens a new channel, is lost.

    Attributes:
        attempts: the time of each attempt.
        open: number of connections that were not closed.
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._outcomes = deque(outcomes)
        self.attempts: list[float] = []
        self.open = 0

    def __call__(self, _url: object, *, client_properties: Mapping[str, Any]) -> FakeConnection:
        """Make a connection, which is not open yet."""
        assert "connection_name" in client_properties
        self.attempts.append(asyncio.get_running_loop().time())
        self.open += 1
        return FakeConnection(self, self._outcomes.popleft() if len(self._outcomes) > 1 else self._outcomes[0])


class FakeConnection:
    """One connection; see FakeConnections."""

    def __init__(self, connections: FakeConnections, outcome: Outcome) -> None:
        self._connections = connections
        self._outcome = outcome
        self._is_closed = False

    async def connect(self, timeout_s: float) -> None:
        if self._outcome is None:
            await asyncio.sleep(timeout_s)
            raise asyncio.TimeoutError
        await asyncio.sleep(0)
        if isinstance(self._outcome, Exception):
            raise self._outcome

    async def channel(self, *, on_return_raises: bool) -> FakeChannel:
        assert on_return_raises
        if isinstance(self._outcome, FakeChannel):
            return self._outcome
        assert isinstance(self._outcome, float)
        channel = FakeChannel()
        asyncio.get_running_loop().call_later(self._outcome, channel.lose)
        return channel

    @property
    def kwargs(self) -> dict[str, Any]:
        """Options of aiormq's connection."""
        return {}

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._connections.open -= 1

    async def __aenter__(self) -> FakeConnection:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _VirtualTimeSelector(selectors.DefaultSelector):
    """Advances the time instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "the test waits for an event that will never happen"
            self.now_s += max(timeout, 0.0)
        return events


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose time starts at 0 and, when all tasks wait, jumps to the next timer."""

    def __init__(self) -> None:
        self._virtual = _VirtualTimeSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s


def in_virtual_time(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Decorate a coroutine function that is a test: run it in an event loop with virtual time.

    After `asyncio.sleep(1)` in the test, everything that can happen within a second has happened. A test that waits for
    something that will never happen fails at once.
    """

    @functools.wraps(test)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        loop = _VirtualTimeLoop()
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            remaining = asyncio.all_tasks(loop)
            for task in remaining:
                task.cancel()
            if remaining:
                loop.run_until_complete(asyncio.wait(remaining))
            loop.close()

    return run
