"""How a worker connects, reconnects and stops, on connections in memory. All times are virtual."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aio_pika
import pytest
from aio_pika import exceptions
from aiormq.exceptions import ChannelAccessRefused
from fake_channel import OPTIONS, FakeChannel, FakeConnections, Outcome, in_virtual_time

from savedmodel_bakery.client.transports.amqp_broker import Broker
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.serving.amqp import publisher
from savedmodel_bakery.serving.amqp.server import Worker
from savedmodel_bakery.wire.status import Code

FOREVER_S = 1e6


Connections = Callable[..., FakeConnections]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """Return a function that replaces aio-pika's connections with fake ones; see FakeConnections."""

    def replace(*outcomes: Outcome) -> FakeConnections:
        fake = FakeConnections(outcomes)
        monkeypatch.setattr(aio_pika, "Connection", fake)
        return fake

    return replace


def start() -> tuple[asyncio.Future[None], asyncio.Event]:
    """Start a worker, whose queue is empty; return its end and the event that stops it."""
    stop = asyncio.Event()
    handlers: Any = SimpleNamespace(check=None)
    return asyncio.ensure_future(Worker(Broker.parse("broker"), handlers, OPTIONS).run(stop)), stop


def unreachable() -> Exception:
    return ConnectionRefusedError(111, "Connection refused")


def unauthenticated() -> Exception:
    return exceptions.ProbableAuthenticationError("ACCESS_REFUSED - Login was refused")


def other_arguments() -> FakeChannel:
    return FakeChannel(exceptions.ChannelPreconditionFailed("PRECONDITION_FAILED - inequivalent arg 'x-queue-type'"))


def not_readable() -> FakeChannel:
    error = ChannelAccessRefused("ACCESS_REFUSED - read access to queue refused for user 'guest'")
    return FakeChannel(error, refuses_to_consume=True)


@pytest.mark.parametrize(("pick", "factor"), [(min, 0.75), (max, 1.25)], ids=["shortest", "longest"])
@in_virtual_time
async def test_a_worker_reconnects_after_jittered_pauses_that_grow_until_it_has_connected(
    monkeypatch: pytest.MonkeyPatch, connections: Connections, pick: Callable[..., float], factor: float
) -> None:
    monkeypatch.setattr(publisher, "random", SimpleNamespace(uniform=pick))
    fake = connections(100.0, *(unreachable() for _ in range(8)), 100.0, FOREVER_S)
    ended, stop = start()
    await asyncio.sleep(1000)
    pauses_s = [pause_s * factor for pause_s in (0.5, 1, 2, 4, 8, 16, 30, 30, 30, 0.5)]
    pauses_s[0] += 100
    pauses_s[-1] += 100
    assert pauses_s == pytest.approx([later - earlier for earlier, later in itertools.pairwise(fake.attempts)])
    assert 1 == fake.open
    stop.set()
    await ended
    assert 0 == fake.open


REFUSALS = {
    "user": (unauthenticated, Code.UNAUTHENTICATED, 'rejects user "guest": wrong user name or password'),
    "queue": (other_arguments, Code.FAILED_PRECONDITION, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type'"),
    "reading": (not_readable, Code.PERMISSION_DENIED, "ACCESS_REFUSED - read access to queue refused"),
}


@pytest.mark.parametrize(("refuse", "code", "text"), REFUSALS.values(), ids=REFUSALS)
@in_virtual_time
async def test_a_worker_that_is_refused_before_it_has_consumed_ends(
    connections: Connections, refuse: Callable[[], Outcome], code: Code, text: str
) -> None:
    fake = connections(unreachable(), refuse())
    ended, _ = start()
    with pytest.raises(RequestRefusedError, match=text) as caught:
        await ended
    assert code == caught.value.code
    assert (2, 0) == (len(fake.attempts), fake.open)


@pytest.mark.parametrize("refuse", [unauthenticated, other_arguments], ids=["user", "queue"])
@in_virtual_time
async def test_a_worker_that_is_refused_after_it_has_consumed_reconnects(
    connections: Connections, refuse: Callable[[], Outcome]
) -> None:
    fake = connections(1.0, refuse(), refuse(), FOREVER_S)
    ended, stop = start()
    await asyncio.sleep(100)
    assert (4, 1) == (len(fake.attempts), fake.open)
    stop.set()
    await ended


STATES = {"connecting": None, "pausing": unreachable(), "consuming": FOREVER_S}


@pytest.mark.parametrize("outcome", STATES.values(), ids=STATES)
@in_virtual_time
async def test_a_worker_can_be_stopped_at_any_time(connections: Connections, outcome: Outcome) -> None:
    fake = connections(outcome)
    ended, stop = start()
    await asyncio.sleep(10)
    stop.set()
    await ended
    assert 10 == asyncio.get_running_loop().time()
    assert 0 == fake.open
