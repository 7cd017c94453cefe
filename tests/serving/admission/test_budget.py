"""The memory budget: who gets memory, who waits and who is rejected."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from unittest.mock import Mock, call

import pytest
from waiting import wait_until

from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.wire.status import StatusError

GIB, MIB = 2**30, 2**20


def in_thread(function: Callable[[], None]) -> Future[None]:
    result: Future[None] = Future()

    def run() -> None:
        try:
            result.set_result(function())
        except StatusError as error:
            result.set_exception(error)

    threading.Thread(target=run).start()
    return result


def test_what_a_request_took_returns_at_its_end() -> None:
    budget = MemoryBudget(10 * MIB)
    context = RequestContext(memory=budget)
    context.charge(4 * MIB)
    context.charge(3 * MIB)
    assert 7 * MIB == budget.held
    context.close()
    assert 0 == budget.held


def test_more_than_the_whole_budget_is_rejected_at_once() -> None:
    context = RequestContext(memory=MemoryBudget(10 * MIB))
    reason = r"needs 11 MiB of memory; all requests together may use 10 MiB \(--memory_budget_bytes\)"
    with pytest.raises(StatusError, match=reason):
        context.charge(11 * MIB)
    with pytest.raises(StatusError, match=reason):
        context.try_charge(11 * MIB)


def test_a_request_waits_until_another_ends() -> None:
    budget = MemoryBudget(10 * MIB)
    first, second = RequestContext(memory=budget), RequestContext(memory=budget)
    first.charge(8 * MIB)
    assert not second.try_charge(5 * MIB)
    waiting = in_thread(lambda: second.charge(5 * MIB))
    wait_until(lambda: budget.queued == 1)
    assert not waiting.done()
    first.close()
    assert waiting.result(10) is None
    assert 5 * MIB == budget.held


def test_a_large_request_is_overtaken_only_by_small_ones() -> None:
    budget = MemoryBudget(16 * MIB)
    first, large, medium, small = (RequestContext(memory=budget) for _ in range(4))
    first.charge(2 * MIB)
    waiting = in_thread(lambda: large.charge(15 * MIB))
    wait_until(lambda: budget.queued == 1)
    assert [False, True, False] == [medium.try_charge(2 * MIB), small.try_charge(MIB), small.try_charge(MIB)]
    first.close()
    waiting.result(10)
    assert 16 * MIB == budget.held


def test_a_small_request_that_waits_goes_on_before_a_large_one() -> None:
    budget = MemoryBudget(16 * MIB)
    first, second, large, small = (RequestContext(memory=budget) for _ in range(4))
    first.charge(8 * MIB)
    second.charge(8 * MIB)
    waiting = []
    for context, size in ((large, 10), (small, 1)):
        waiting.append(in_thread(lambda context=context, size=size: context.charge(size * MIB)))
        wait_until(lambda: budget.queued == len(waiting))
    first.close()
    waiting[1].result(10)
    assert [False, 9 * MIB] == [waiting[0].done(), budget.held]
    second.close()
    waiting[0].result(10)


def test_a_request_that_holds_memory_goes_on_if_there_is_enough_for_it_but_not_for_those_before_it() -> None:
    budget = MemoryBudget(16 * MIB)
    holder, large = RequestContext(memory=budget), RequestContext(memory=budget)
    holder.charge(6 * MIB)
    waiting = in_thread(lambda: large.charge(12 * MIB))
    wait_until(lambda: budget.queued == 1)
    holder.charge(MIB)
    assert [False, 7 * MIB] == [waiting.done(), budget.held]
    holder.close()
    waiting.result(10)


def test_a_request_waits_no_longer_than_its_deadline() -> None:
    budget = MemoryBudget(10 * MIB)
    RequestContext(memory=budget).charge(8 * MIB)
    late = RequestContext(memory=budget, timeout_s=0.05)
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED: the request needs 5 MiB more") as error:
        late.charge(5 * MIB)
    assert error.value.retry_after_s
    assert 8 * MIB == budget.held


def test_a_cancelled_request_stops_waiting() -> None:
    budget = MemoryBudget(10 * MIB)
    RequestContext(memory=budget).charge(8 * MIB)
    context = RequestContext(memory=budget)
    waiting = in_thread(lambda: context.charge(5 * MIB))
    wait_until(lambda: budget.queued == 1)
    context.cancel()
    with pytest.raises(StatusError, match="CANCELLED"):
        waiting.result(10)
    assert 8 * MIB == budget.held


def test_if_all_that_hold_memory_wait_the_last_is_rejected_and_the_other_goes_on() -> None:
    budget = MemoryBudget(10 * MIB)
    first, second = RequestContext(memory=budget), RequestContext(memory=budget)
    first.charge(5 * MIB)
    second.charge(5 * MIB)
    waiting = in_thread(lambda: first.charge(3 * MIB))
    wait_until(lambda: budget.queued == 1)
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        second.charge(3 * MIB)
    second.close()
    waiting.result(10)
    assert 8 * MIB == budget.held


def test_if_the_last_that_runs_ends_and_those_that_hold_memory_wait_one_is_rejected() -> None:
    budget = MemoryBudget(10 * MIB)
    first, second, other, running = (RequestContext(memory=budget) for _ in range(4))
    first.charge(4 * MIB)
    second.charge(5 * MIB)  # the one that holds most
    running.charge(MIB)
    waiting = []
    for context, size in ((first, 3), (second, 3), (other, 3)):
        waiting.append(in_thread(lambda context=context, size=size: context.charge(size * MIB)))
        wait_until(lambda: budget.queued == len(waiting))
    running.close()
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        waiting[1].result(10)  # the rejection of `other`, which holds nothing, would free nothing
    second.close()
    waiting[0].result(10)
    first.close()
    waiting[2].result(10)
    assert 3 * MIB == budget.held


def test_what_would_need_more_than_the_whole_budget_together_does_not_wait() -> None:
    budget = MemoryBudget(10 * MIB)
    context, other = RequestContext(memory=budget), RequestContext(memory=budget)
    context.charge(6 * MIB)
    other.charge(MIB)
    with pytest.raises(StatusError, match="the request needs 11 MiB of memory; all requests together may use 10 MiB"):
        context.charge(5 * MIB)


def test_models_that_are_loaded_meanwhile_leave_no_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = 0
    monkeypatch.setattr(process, "memory_limit_bytes", lambda: 100 * MIB)
    monkeypatch.setattr(process, "resident_bytes", lambda: resident)
    budget = MemoryBudget()
    first, second = RequestContext(memory=budget), RequestContext(memory=budget)
    first.charge(20 * MIB)
    waiting = in_thread(lambda: second.charge(60 * MIB))
    wait_until(lambda: budget.queued == 1)
    resident = 60 * MIB
    budget.measure_models()
    with pytest.raises(StatusError, match="RESOURCE_EXHAUSTED"):
        waiting.result(10)


def test_by_default_a_part_of_the_memory_is_for_requests() -> None:
    assert 64 * MIB < MemoryBudget().size < MemoryBudget()._limit


def test_many_requests_share_a_budget_without_exceeding_it() -> None:
    budget = MemoryBudget(10 * MIB)
    highest = []

    def request(size: int) -> None:
        context = RequestContext(memory=budget, timeout_s=30)
        context.charge(size * MIB)
        highest.append(budget.held)
        context.close()

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(request, [1 + number % 7 for number in range(400)]))
    assert max(highest) <= 10 * MIB
    assert (0, 0) == (budget.held, budget.queued)


def test_memory_is_returned_to_the_system_if_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = GIB
    trimming_threads: list[int] = []
    monkeypatch.setattr(process, "resident_bytes", lambda: resident)
    monkeypatch.setattr(process, "trim_memory", lambda: trimming_threads.append(threading.get_ident()))
    budget, this_thread = MemoryBudget(GIB), threading.get_ident()  # budgets of earlier tests have threads of their own
    budget.trim()
    assert 0 == trimming_threads.count(this_thread)
    resident += GIB
    budget.trim()
    assert 1 == trimming_threads.count(this_thread)


def test_memory_is_not_returned_between_requests_that_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, resident, trim_in = Mock(return_value=0.0), Mock(return_value=GIB), Mock()
    trimming_threads: list[int] = []
    monkeypatch.setattr("savedmodel_bakery.serving.admission.budget.time", Mock(monotonic=clock))
    monkeypatch.setattr(process, "resident_bytes", resident)
    monkeypatch.setattr(process, "trim_memory", lambda: trimming_threads.append(threading.get_ident()))
    budget, this_thread = MemoryBudget(GIB), threading.get_ident()  # budgets of earlier tests have threads of their own
    monkeypatch.setattr(budget, "_trim_in", trim_in)
    resident.return_value += GIB
    for clock.return_value in (1.0, 3.0):
        assert budget.try_take(8 * MIB)
        budget.give_back(8 * MIB)
    assert budget.try_take(MIB)  # a small request beside the others
    for clock.return_value, trims in ((6.0, 0), (8.0, 1)):
        budget.trim()
        assert trims == trimming_threads.count(this_thread)
    assert [call(5.0), call(2.0)] == trim_in.call_args_list


def test_memory_is_returned_to_the_system_later_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control group may limit the number of threads."""
    trimmed: list[MemoryBudget] = []  # budgets of earlier tests may be among them
    monkeypatch.setattr(MemoryBudget, "trim", lambda self: trimmed.append(self))
    monkeypatch.setattr("savedmodel_bakery.serving.admission.budget._TRIM_DELAY_S", 0.01)
    budget = MemoryBudget(GIB)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        for _ in range(2):
            assert budget.try_take(MIB)
            budget.give_back(MIB)
    assert budget.try_take(MIB)
    budget.give_back(MIB)
    wait_until(lambda: budget in trimmed)
