"""How a worker processes the messages of its queues, on a channel in memory. All times are virtual."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from aio_pika import Message
from aiormq.exceptions import ConnectionFrameError, ConnectionInternalError
from fake_channel import OPTIONS, FakeBroker, FakeChannel, FakeQueue, in_virtual_time
from raw_amqp import RawMessage, nested, short

from savedmodel_bakery.errors import ConnectionFailedError
from savedmodel_bakery.serving.amqp import codec, queues
from savedmodel_bakery.serving.amqp.codec import Response, encode_failure
from savedmodel_bakery.serving.amqp.consumer import GRACE_S, Consumer
from savedmodel_bakery.serving.amqp.publisher import Publisher
from savedmodel_bakery.wire import amqp
from savedmodel_bakery.wire.status import Code, StatusError

QUEUE, RETRIES, DEAD, RESULTS = OPTIONS.queue, "bakery.predict.retry", "bakery.predict.dead", "results"
CALL_S = 1.0
Answer = Callable[[codec.Message], Response]


def succeed(message: codec.Message) -> Response:
    return Response(message.body.upper(), amqp.JSON)


class StubModel(Executor):
    """Stands in for the handlers and for the threads that they run on.

    Args:
        answer: makes the response to a message.
        call_s: duration of a call.

    Attributes:
        calls: when each call began, and the bodies of its messages.
        checks: number of checks of the backend.
    """

    def __init__(self, answer: Answer, call_s: float) -> None:
        self._answer = answer
        self._call_s = call_s
        self.calls: list[tuple[float, list[bytes]]] = []
        self.checks = 0

    def check(self) -> None:
        self.checks += 1

    def handle(self, messages: Sequence[codec.Message]) -> list[Response]:
        now_s = asyncio.get_running_loop().time()
        self.calls.append((round(now_s, 3), [message.body for message in messages]))
        return [self._answer(message) for message in messages]

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            finish, result = future.set_result, function(*args, **kwargs)
        except Exception as error:
            finish, result = future.set_exception, error

        def end() -> None:
            if future.set_running_or_notify_cancel():
                finish(result)

        asyncio.get_running_loop().call_later(0 if function == self.check else self._call_s, end)
        return future


class RunningConsumer:
    """A consumer on a channel of its own; leaving the `async with` block stops it.

    Args:
        answer: makes the response to a message.
        call_s: duration of a call.
        options: fields of WorkerOptions.
        waiting: messages that are in a queue before the consumer starts, by queue.
    """

    def __init__(
        self,
        answer: Answer = succeed,
        *,
        call_s: float = CALL_S,
        options: dict[str, Any] | None = None,
        waiting: dict[str, Message] | None = None,
    ) -> None:
        self._options = dataclasses.replace(OPTIONS, **options or {})
        self._waiting = waiting or {}
        self.model: Any = StubModel(answer, call_s)
        self.channel: Any = FakeChannel()
        self.broker: Any = FakeBroker(self.channel)
        self.stop = asyncio.Event()
        self.ended: asyncio.Future[None]

    async def __aenter__(self) -> RunningConsumer:
        declared = await queues.declare(self.channel, QUEUE, delivery_limit=self._options.delivery_limit)
        await self.channel.declare_queue(RESULTS)
        for queue, message in self._waiting.items():
            await self.publish(message, queue)
        replies, copies = (
            Publisher(self.broker, name, at_once=at_once, waits_for_room=True)
            for name, at_once in (("replies", 16), ("copies", 1))
        )
        consumer = Consumer(self.channel, replies, copies, self.model, self._options, self.model)
        self.ended = asyncio.ensure_future(consumer.run(declared, self.stop))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop.set()
        if not self.ended.done():
            await self.ended

    async def publish(self, message: Message, queue: str = QUEUE) -> None:
        await self.channel.publish(message, queue, mandatory=True)

    def queue(self, name: str) -> FakeQueue:
        return self.channel.queues[name]

    @property
    def replies(self) -> list[Message]:
        return self.queue(RESULTS).published

    @property
    def reasons(self) -> list[Any]:
        """The reasons of the dead letters."""
        return [letter.headers[amqp.REASON] for letter in self.queue(DEAD).published]


def request(body: bytes, headers: dict[str, Any] | None = None, *, reply_to: str | None = RESULTS) -> Message:
    return Message(body, headers=headers, content_type=amqp.JSON, reply_to=reply_to, correlation_id="7", expiration=60)


def redelivered(body: bytes) -> Message:
    return request(body, {amqp.DELIVERY_COUNT: 1})


@in_virtual_time
async def test_a_compressed_message_is_rejected_with_a_reason() -> None:
    """Some libraries always send a character set."""
    async with RunningConsumer() as running:
        for encoding in ("gzip", "utf-8"):
            message = request(b"text")
            message.content_encoding = encoding
            await running.publish(message)
        await asyncio.sleep(10)
    reason = (
        'INVALID_ARGUMENT: content_encoding "gzip" is not supported: must be utf-8, us-ascii, binary, identity or none'
    )
    assert [reason] == running.reasons
    assert [3, 0] == [reply.headers["grpc-status"] for reply in running.replies]


@in_virtual_time
async def test_a_message_is_acknowledged_only_after_its_reply_has_been_confirmed() -> None:
    """The message is as large as allowed."""
    body = b"a" * OPTIONS.max_message_bytes
    async with RunningConsumer() as running:
        running.queue(RESULTS).confirms.clear()
        await running.publish(request(body))
        await asyncio.sleep(10)
        (reply,) = running.replies
        assert (body.upper(), "7", {"grpc-status": 0}) == (reply.body, reply.correlation_id, reply.headers)
        assert [] == running.channel.acknowledged
        running.queue(RESULTS).confirms.set()
        await asyncio.sleep(0.1)
        assert [(QUEUE, body)] == running.channel.acknowledged


@in_virtual_time
async def test_messages_that_wait_for_a_call_are_joined_up_to_the_batch_size() -> None:
    async with RunningConsumer(options={"calls": 1, "batch_size": 3}) as running:
        await running.publish(request(b"a"))
        await asyncio.sleep(0.5)
        for body in (b"b", b"c", b"d", b"e", b"f"):
            await running.publish(request(body))
        await asyncio.sleep(10)
        assert [(0, [b"a"]), (1, [b"b", b"c", b"d"]), (2, [b"e", b"f"])] == running.model.calls
        assert [b"A", b"B", b"C", b"D", b"E", b"F"] == [reply.body for reply in running.replies]


@in_virtual_time
async def test_no_more_calls_run_at_once_than_allowed() -> None:
    async with RunningConsumer(options={"calls": 2}) as running:
        for body in (b"a", b"b", b"c", b"d", b"e"):
            await running.publish(request(body))
        await asyncio.sleep(10)
        assert [0, 0, 1, 1, 2] == [start_s for start_s, _ in running.model.calls]


@in_virtual_time
async def test_a_redelivered_message_is_moved_to_the_retry_queue_with_its_counts_and_then_acknowledged() -> None:
    async with RunningConsumer() as running:
        running.queue(RETRIES).confirms.clear()
        await running.publish(request(b"a", {amqp.DELIVERY_COUNT: 2, "model": "pets"}))
        await asyncio.sleep(1)
        (copy,) = running.queue(RETRIES).published
        assert {"model": "pets", amqp.DELIVERIES: 2, amqp.ATTEMPTS: 0} == copy.headers
        assert (b"a", amqp.JSON, RESULTS, "7", 60) == (
            copy.body, copy.content_type, copy.reply_to, copy.correlation_id, copy.expiration,
        )  # fmt: skip
        assert [] == running.channel.acknowledged
        running.queue(RETRIES).confirms.set()
        await asyncio.sleep(10)
        assert [(QUEUE, b"a"), (RETRIES, b"a")] == running.channel.acknowledged
        assert [(1, [b"a"])] == running.model.calls


@in_virtual_time
async def test_a_message_from_the_retry_queue_waits_for_moves() -> None:
    """Both messages are in their queues before the consumer starts; it receives the one to move first."""
    async with RunningConsumer(waiting={RETRIES: request(b"retried"), QUEUE: redelivered(b"moved")}) as running:
        running.queue(RETRIES).confirms.clear()
        await asyncio.sleep(3)
        assert [] == running.model.calls
        running.queue(RETRIES).confirms.set()
        await asyncio.sleep(10)
        assert [(3, [b"retried"]), (4, [b"moved"])] == running.model.calls


@in_virtual_time
async def test_a_message_from_the_retry_queue_waits_for_moves_no_longer_than_the_limit() -> None:
    """A full retry queue accepts no message before one of its own is processed."""
    async with RunningConsumer(waiting={RETRIES: request(b"retried"), QUEUE: redelivered(b"moved")}) as running:
        running.queue(RETRIES).max_length = 1
        await asyncio.sleep(100)
        assert (5, [b"retried"]) == running.model.calls[0]
        assert [(RETRIES, b"retried"), (QUEUE, b"moved"), (RETRIES, b"moved")] == running.channel.acknowledged


@pytest.mark.parametrize(
    ("attempts", "starts"),
    [(0, [(0, b"a"), (0.5, b"retried"), (1.25, b"b")]), (1, [(0, b"a"), (1, b"retried"), (2, b"b")])],
    ids=["no attempts", "attempts"],
)
@in_virtual_time
async def test_a_message_with_attempts_uses_all_calls(attempts: int, starts: list[tuple[float, bytes]]) -> None:
    async with RunningConsumer(options={"calls": 2}) as running:
        await running.publish(request(b"a"))
        await asyncio.sleep(0.5)
        await running.publish(request(b"retried", {amqp.ATTEMPTS: attempts}), RETRIES)
        await asyncio.sleep(0.75)
        await running.publish(request(b"b"))
        await asyncio.sleep(10)
        assert starts == [(start_s, body) for start_s, (body,) in running.model.calls]


LIMIT_REACHED = "ABORTED: the message was delivered 3 times without a reply"
REJECTED = {
    "too large": (QUEUE, request(b"x" * 101), [Code.RESOURCE_EXHAUSTED], "RESOURCE_EXHAUSTED: the message has 101"),
    "reply queue": (QUEUE, request(b"a", reply_to=DEAD), [], f'PERMISSION_DENIED: reply_to "{DEAD}" is not allowed'),
    "no reply queue": (QUEUE, request(b"a", reply_to=None), [], "INVALID_ARGUMENT: the message has no reply_to"),
    "delivery limit": (QUEUE, request(b"a", {amqp.DELIVERY_COUNT: 3}), [Code.ABORTED], LIMIT_REACHED),
    "delivery limit of both queues": (
        RETRIES, request(b"a", {amqp.DELIVERIES: 2, amqp.DELIVERY_COUNT: 1}), [Code.ABORTED], LIMIT_REACHED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("queue", "message", "codes", "reason"), REJECTED.values(), ids=REJECTED)
@in_virtual_time
async def test_a_rejected_message_is_dead_lettered_without_a_call(
    queue: str, message: Message, codes: list[Code], reason: str
) -> None:
    """It has a reply if its reply queue is allowed."""
    async with RunningConsumer() as running:
        running.queue(DEAD).confirms.clear()
        await running.publish(message, queue)
        await asyncio.sleep(10)
        assert codes == [reply.headers["grpc-status"] for reply in running.replies]
        assert [reason] == [text[: len(reason)] for text in running.reasons]
        assert [] == running.channel.acknowledged
        running.queue(DEAD).confirms.set()
        await asyncio.sleep(0.1)
        assert [(queue, message.body)] == running.channel.acknowledged
        assert [] == running.model.calls


INVALID = StatusError(Code.INVALID_ARGUMENT, "no JSON")
DEAD_LETTERED = {
    "no worker could process it": (RESULTS, True, [Code.INVALID_ARGUMENT], ["INVALID_ARGUMENT: no JSON"]),
    "an error": (RESULTS, False, [Code.INVALID_ARGUMENT], []),
    "no reply queue": ("results.gone", False, [], ['reply queue "results.gone" does not exist']),
    "caller disconnected": ("amq.gen-gone", False, [], []),
}


@pytest.mark.parametrize(("reply_to", "dead_letter", "codes", "reasons"), DEAD_LETTERED.values(), ids=DEAD_LETTERED)
@in_virtual_time
async def test_a_message_is_dead_lettered_after_its_call_if_the_response_or_a_missing_reply_queue_requires_it(
    reply_to: str, dead_letter: bool, codes: list[Code], reasons: list[str]
) -> None:
    response = encode_failure(INVALID, amqp.JSON, dead_letter=dead_letter)
    async with RunningConsumer(lambda _: response) as running:
        await running.publish(request(b"a", reply_to=reply_to))
        await asyncio.sleep(10)
        assert codes == [reply.headers["grpc-status"] for reply in running.replies]
        assert reasons == running.reasons
        assert [(QUEUE, b"a")] == running.channel.acknowledged


TEMPORARY = {
    "unavailable": (StatusError(Code.UNAVAILABLE, "no route"), [1, 4, 16, 60], 5),
    "busy": (StatusError(Code.RESOURCE_EXHAUSTED, "no memory", retry_after_s=10), [10, 10, 16, 60], 1),
}


@pytest.mark.parametrize(("error", "pauses_s", "checks"), TEMPORARY.values(), ids=TEMPORARY)
@in_virtual_time
async def test_an_unavailable_backend_leads_to_retries_after_growing_pauses_and_then_to_a_dead_letter(
    error: StatusError, pauses_s: list[float], checks: int
) -> None:
    """The backend is checked before each call after one that found it unavailable."""
    async with RunningConsumer(lambda _: Response(b"", amqp.JSON, error=error)) as running:
        await running.publish(request(b"a"))
        await asyncio.sleep(200)
        starts_s = [start_s for start_s, _ in running.model.calls]
        assert pauses_s == [later - earlier - CALL_S for earlier, later in itertools.pairwise(starts_s)]
        assert checks == running.model.checks
        assert [(0, 1), (0, 2), (0, 3), (0, 4)] == [
            (copy.headers[amqp.DELIVERIES], copy.headers[amqp.ATTEMPTS]) for copy in running.queue(RETRIES).published
        ]
        (reply,), (reason,) = running.replies, running.reasons
        assert Code.ABORTED == reply.headers["grpc-status"]
        assert f"ABORTED: {reply.headers['grpc-message']}" == reason
        assert "in 5 attempts (--retry-attempts), perhaps because of the message, which was moved" in reason
        assert reason.endswith(f"last error: {error}")
        assert [QUEUE, RETRIES, RETRIES, RETRIES, RETRIES] == [queue for queue, _ in running.channel.acknowledged]


@pytest.mark.parametrize("count", ["many", -500, 9.5, True, None, bytearray(b"\xff"), [9], {"count": 9}], ids=repr)
@in_virtual_time
async def test_a_count_that_a_publisher_set_to_nonsense_is_0(count: object) -> None:
    counts = {amqp.DELIVERY_COUNT: count, amqp.DELIVERIES: count, amqp.ATTEMPTS: count}
    waiting = {QUEUE: request(b"a", dict(counts)), RETRIES: request(b"retried", dict(counts))}
    async with RunningConsumer(waiting=waiting) as running:
        await asyncio.sleep(10)
        assert [(0, [b"a"]), (0, [b"retried"])] == sorted(running.model.calls)
        assert {(QUEUE, b"a"), (RETRIES, b"retried")} == set(running.channel.acknowledged)


@in_virtual_time
async def test_a_consumer_that_is_stopped_finishes_prefetched_messages_and_receives_no_others() -> None:
    async with RunningConsumer(options={"calls": 1}) as running:
        for body in (b"a", b"b"):
            await running.publish(request(body))
        await asyncio.sleep(0.5)
        running.stop.set()
        await asyncio.sleep(0.1)
        await running.publish(request(b"c"))
        await running.publish(request(b"d"), RETRIES)
        assert {} == running.channel.consumers
        await running.ended
        assert pytest.approx(2) == asyncio.get_running_loop().time()
        assert [(QUEUE, b"a"), (QUEUE, b"b")] == running.channel.acknowledged


@in_virtual_time
async def test_a_consumer_that_is_stopped_returns_messages_after_the_grace_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with RunningConsumer(call_s=1000) as running:
        await running.publish(request(b"a"))
        await asyncio.sleep(0.5)
        running.stop.set()
        await running.ended
        assert pytest.approx(0.5 + GRACE_S) == asyncio.get_running_loop().time()
        assert f"1 messages return to queue {QUEUE} unprocessed" in caplog.messages
        await asyncio.sleep(1000)
        assert ([], []) == (running.replies, running.channel.acknowledged)


@in_virtual_time
async def test_a_lost_channel_ends_a_consumer_at_once() -> None:
    async with RunningConsumer() as running:
        await running.publish(request(b"a"))
        await asyncio.sleep(0.5)
        running.channel.lose()
        with pytest.raises(ConnectionFailedError, match="was lost"):
            await running.ended
        assert pytest.approx(0.5) == asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        assert [] == running.replies


@in_virtual_time
async def test_an_unexpected_exception_closes_the_channel(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: codec.Message) -> Response:
        raise ZeroDivisionError

    async with RunningConsumer(fail) as running:
        await running.publish(request(b"a"))
        with pytest.raises(ConnectionFailedError):
            await running.ended
        assert running.channel.is_closed
        assert ([], []) == (running.replies, running.channel.acknowledged)
        (message,) = [record.message for record in caplog.records if record.exc_info]
        assert "processing a message failed with an unexpected exception" in message


@pytest.mark.parametrize("name", [QUEUE, RETRIES])
@in_virtual_time
async def test_a_consumer_notices_that_a_queue_was_deleted(caplog: pytest.LogCaptureFixture, name: str) -> None:
    async with RunningConsumer() as running:
        await asyncio.sleep(10)
        running.channel.delete_queue(name)
        with pytest.raises(ConnectionFailedError):
            await running.ended
        assert f"closing the channel: queue {QUEUE} was deleted" in caplog.messages


CRAFTED = "amq.rabbitmq.reply-to.AAAA.BBBB"
UNREADABLE = {
    "with a reply queue": ({"timestamp": b"\xff" * 8}, [Code.INVALID_ARGUMENT], "the property timestamp can't be"),
    "without one": ({"reply_to": short(b"results\xff")}, [], "the property reply_to can't be decoded: 'utf-8' codec"),
    "in the headers": (
        {"headers": nested(b"F", 2000)},
        [Code.INVALID_ARGUMENT],
        'the property headers can\'t be decoded: "k"',
    ),
}


@pytest.mark.parametrize(("fields", "codes", "reason"), UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("queue", [QUEUE, RETRIES])
@in_virtual_time
async def test_an_unreadable_message_is_dead_lettered_and_others_are_answered(
    queue: str, fields: dict[str, bytes], codes: list[Code], reason: str
) -> None:
    poison = RawMessage(b"poison", {"reply_to": short(RESULTS.encode()), **fields})
    async with RunningConsumer() as running:
        for message in (request(b"a"), poison, request(b"b")):
            await running.publish(message, queue)
        await asyncio.sleep(10)
        assert [f"INVALID_ARGUMENT: {reason}"] == [text[: len(reason) + 18] for text in running.reasons]
        assert [b"poison"] == [letter.body for letter in running.queue(DEAD).published]
        assert sorted([*codes, 0, 0]) == sorted(reply.headers["grpc-status"] for reply in running.replies)
        assert {(queue, b"a"), (queue, b"poison"), (queue, b"b")} == set(running.channel.acknowledged)


@in_virtual_time
async def test_a_message_whose_reply_the_broker_refuses_is_dead_lettered_and_others_are_answered() -> None:
    async with RunningConsumer(options={"calls": 3}) as running:
        running.broker.refusals[CRAFTED] = ConnectionInternalError("INTERNAL_ERROR")
        for message in (request(b"a"), request(b"poison", reply_to=CRAFTED), request(b"b")):
            await running.publish(message)
        await asyncio.sleep(10)
        assert [f"the broker refuses a message to {CRAFTED}: INTERNAL_ERROR"] == running.reasons
        assert {b"A", b"B"} == {reply.body for reply in running.replies}
        assert {(QUEUE, b"a"), (QUEUE, b"poison"), (QUEUE, b"b")} == set(running.channel.acknowledged)


@pytest.mark.parametrize("message", [request(b"a", reply_to=None), redelivered(b"a")], ids=["dead letter", "retry"])
@in_virtual_time
async def test_a_message_whose_copy_the_broker_refuses_is_dead_lettered_by_the_broker(message: Message) -> None:
    async with RunningConsumer() as running:
        for queue in (RETRIES, DEAD):
            running.broker.refusals[queue] = ConnectionFrameError("FRAME_ERROR")
        await running.publish(message)
        await asyncio.sleep(10)
        assert [(QUEUE, b"a")] == running.channel.rejected
        assert [] == running.channel.acknowledged
