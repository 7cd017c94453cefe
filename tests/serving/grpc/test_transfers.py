"""A gRPC call holds its memory until its response has been sent, and clients have limited time to read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from waiting import wait_until

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.grpc.transfers import Transfers

MIB = 2**20


class StubCall:
    """What `Transfers` uses of gRPC's context of a call."""

    def __init__(self, *, is_over: bool = False, peer: str = "") -> None:
        self._is_over = is_over
        self._peer = peer
        self.is_cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return not self._is_over

    def peer(self) -> str:
        return self._peer

    def cancel(self) -> None:
        self.is_cancelled = True
        self.end()

    def end(self) -> None:
        while self._callbacks:
            self._callbacks.pop()()


def send(transfers: Transfers, call: StubCall, budget: MemoryBudget) -> None:
    """Send the response of a call that has used memory."""
    context = RequestContext(memory=budget)
    transfers.watch(call, context)
    context.charge(5 * MIB)
    transfers.send(call, context)


def test_memory_is_held_until_the_response_has_been_sent() -> None:
    budget = MemoryBudget(10 * MIB)
    transfers, call = Transfers(60, budget), StubCall()
    send(transfers, call, budget)
    assert 5 * MIB == budget.held
    call.end()
    assert 0 == budget.held


def test_memory_of_a_call_that_has_ended_is_given_back_at_once() -> None:
    budget = MemoryBudget(10 * MIB)
    send(Transfers(60, budget), StubCall(is_over=True), budget)
    assert 0 == budget.held


def test_memory_of_a_call_that_has_ended_while_its_model_ran_is_given_back_after_the_run() -> None:
    budget = MemoryBudget(10 * MIB)
    transfers, call, context = Transfers(60, budget), StubCall(), RequestContext(memory=budget)
    transfers.watch(call, context)
    context.charge(5 * MIB)
    call.end()
    assert context.is_cancelled
    assert 5 * MIB == budget.held
    transfers.send(call, context)
    assert 0 == budget.held


def test_memory_of_a_call_that_has_ended_while_its_message_arrived_is_given_back() -> None:
    budget = MemoryBudget(10 * MIB)
    transfers, call, context = Transfers(60, budget), StubCall(), RequestContext(memory=budget)
    transfers.watch(call, context)

    def messages() -> Iterator[bytes]:
        call.end()
        yield b"message"

    assert b"message" == transfers.receive(messages(), call)
    context.charge(5 * MIB)
    assert 5 * MIB == budget.held
    transfers.send(call, context)
    assert 0 == budget.held


def test_a_response_that_is_not_read_in_time_is_cancelled() -> None:
    budget = MemoryBudget(10 * MIB)
    send(Transfers(0.2, budget), StubCall(), budget)
    assert 5 * MIB == budget.held
    wait_until(lambda: budget.held == 0)


def test_while_others_wait_for_memory_the_largest_unread_response_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("savedmodel_bakery.serving.grpc.transfers.READING_S", 0.2)
    budget = MemoryBudget(12 * MIB)
    transfers, large, small, waiting = Transfers(60, budget), StubCall(), StubCall(), RequestContext(memory=budget)
    send(transfers, large, budget)
    context = RequestContext(memory=budget)
    transfers.watch(small, context)
    context.charge(4 * MIB)
    transfers.send(small, context)
    waiting.charge(7 * MIB)
    assert [True, False] == [large.is_cancelled, small.is_cancelled]
    assert 11 * MIB == budget.held


def test_a_place_is_given_up_by_the_caller_that_holds_most() -> None:
    transfers = Transfers(60, MemoryBudget(10 * MIB))
    honest, *flood = calls = [StubCall(peer=peer) for peer in ("honest", "flood", "flood")]
    with ExitStack() as waiting:
        for call in calls:
            waiting.enter_context(transfers.limited(call))
        assert transfers.cancel_longest()
    assert [True, False] == [call.is_cancelled for call in flood]
    assert not honest.is_cancelled
