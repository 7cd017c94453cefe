"""A gRPC call holds its memory until its response has been sent, and clients have limited time to read it."""

from __future__ import annotations

from collections.abc import Callable

from waiting import wait_until

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.grpc.server import Transfers

MIB = 2**20


class StubCall:
    """What `Transfers` uses of gRPC's context of a call."""

    def __init__(self, *, is_over: bool = False) -> None:
        self._is_over = is_over
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return not self._is_over

    def cancel(self) -> None:
        self.end()

    def end(self) -> None:
        while self._callbacks:
            self._callbacks.pop()()


def charged(budget: MemoryBudget) -> RequestContext:
    context = RequestContext(memory=budget)
    context.charge(5 * MIB)
    return context


def test_memory_is_held_until_the_response_has_been_sent() -> None:
    budget = MemoryBudget(10 * MIB)
    transfers, call = Transfers(60, budget), StubCall()
    transfers.send(call, charged(budget))
    assert 5 * MIB == budget.held
    call.end()
    assert 0 == budget.held


def test_memory_of_a_call_that_has_ended_is_given_back_at_once() -> None:
    budget = MemoryBudget(10 * MIB)
    Transfers(60, budget).send(StubCall(is_over=True), charged(budget))
    assert 0 == budget.held


def test_a_response_that_is_not_read_in_time_is_cancelled() -> None:
    budget = MemoryBudget(10 * MIB)
    Transfers(0.2, budget).send(StubCall(), charged(budget))
    assert 5 * MIB == budget.held
    wait_until(lambda: budget.held == 0)
