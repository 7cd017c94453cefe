"""Places and turns of calls: who runs, who waits and who is rejected."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.wire.status import Code, StatusError


def make(*, turns: int, waiting: int = 100) -> Admission:
    return Admission(Limits(waiting_calls=waiting), MemoryBudget(2**20), turns=turns)


def test_there_are_places_for_the_calls_that_run_and_wait() -> None:
    admission = make(turns=2, waiting=1)
    for _ in range(3):
        admission.enter()
    with pytest.raises(StatusError) as error:
        admission.enter()
    assert "RESOURCE_EXHAUSTED: 2 calls run and 1 wait, which is the limit (--max_waiting_calls)" == str(error.value)
    admission.leave()
    admission.enter()


def test_a_call_that_replaces_another_has_a_place_beyond_the_limit() -> None:
    admission = make(turns=1, waiting=0)
    admission.enter()
    admission.enter(is_forced=True)
    admission.leave()
    with pytest.raises(StatusError):
        admission.enter()


def test_calls_run_in_the_order_of_their_arrival() -> None:
    admission, order = make(turns=1), []

    def run(number: int) -> None:
        with admission.turn(RequestContext()):
            order.append(number)

    with ThreadPoolExecutor(8) as threads, admission.turn(RequestContext()):
        for number in range(8):
            threads.submit(run, number)
            wait_until(lambda number=number: admission.queued == number + 1)
    assert list(range(8)) == order


def test_no_more_calls_run_than_there_are_turns() -> None:
    admission, running, highest = make(turns=3), set(), []

    def run(_: int) -> None:
        with admission.turn(RequestContext(timeout_s=30)):
            running.add(threading.get_ident())
            highest.append(len(running))
            time.sleep(0.001)
            running.remove(threading.get_ident())

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(run, range(120)))
    assert (120, 3) == (len(highest), max(highest))


def test_a_cancelled_call_gives_up_its_place_in_the_queue() -> None:
    admission, context = make(turns=1), RequestContext()
    with ThreadPoolExecutor(1) as threads, admission.turn(RequestContext()):
        waiting = threads.submit(lambda: admission.turn(context).__enter__())
        wait_until(lambda: admission.queued == 1)
        context.cancel()
        with pytest.raises(StatusError, match="CANCELLED"):
            waiting.result(10)
    with admission.turn(RequestContext(timeout_s=1)):
        pass


def test_a_call_whose_deadline_passes_while_it_waits_ends() -> None:
    admission = make(turns=1)
    with (
        admission.turn(RequestContext()),
        pytest.raises(StatusError, match="DEADLINE_EXCEEDED"),
        admission.turn(RequestContext(timeout_s=0.05)),
    ):
        pass


def test_a_call_that_could_not_be_answered_in_time_is_rejected_at_once() -> None:
    admission = make(turns=1)
    for _ in range(30):
        with admission.turn(RequestContext()):
            time.sleep(0.02)  # the estimate of a run grows to 0.02 s
    with admission.turn(RequestContext()):
        with (
            pytest.raises(
                StatusError, match=r"RESOURCE_EXHAUSTED: the server is busy: .* deadline is in 0\.0 s"
            ) as error,
            admission.turn(RequestContext(timeout_s=0.01)),
        ):
            pass
        assert error.value.retry_after_s
    with admission.turn(RequestContext(timeout_s=0.01)):
        pass  # nobody runs, so it may try


def test_a_call_that_waits_for_memory_lets_others_run() -> None:
    budget = MemoryBudget(10 * 2**20)
    admission, holder = Admission(Limits(), budget, turns=1), RequestContext(memory=budget)
    holder.charge(8 * 2**20)

    def run() -> str:
        context = RequestContext(memory=budget)
        with admission.turn(context):
            context.charge(5 * 2**20)
            return "has run"

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(run)
        wait_until(lambda: budget.queued == 1)
        with admission.turn(RequestContext(timeout_s=10)):
            holder.close()
            wait_until(lambda: budget.queued == 0)
            assert not waiting.done()
        assert "has run" == waiting.result(10)


def test_a_call_that_could_not_be_answered_in_time_need_not_be_received() -> None:
    admission = make(turns=1)
    with admission.turn(RequestContext()):
        time.sleep(0.02)
    admission.expect(RequestContext(), 0.0001)  # nobody runs or is about to
    with pytest.raises(StatusError, match="the server is busy"):
        admission.expect(RequestContext(), 0.01)
    admission.expect(RequestContext(), None)
    admission.expect(RequestContext(), 10)


def test_calls_count_while_they_arrive_but_not_for_long() -> None:
    admission = make(turns=1)
    arrived = RequestContext()
    with admission.turn(RequestContext()):
        time.sleep(0.02)
    admission.expect(arrived, 0.0001)
    with admission.turn(arrived):
        pass
    admission.expect(RequestContext(), 0.0001)  # and sends nothing

    def is_accepted() -> bool:
        try:
            admission.expect(RequestContext(), 0.0001)
        except StatusError:
            return False
        return True

    assert not is_accepted()
    wait_until(is_accepted, timeout_s=5)


def test_a_call_that_ends_without_a_turn_counts_no_more() -> None:
    admission = make(turns=1)
    with admission.turn(RequestContext()):
        time.sleep(0.02)
    for _ in range(5):
        rejected = RequestContext()
        admission.enter()
        admission.expect(rejected, 0.0001)
        admission.leave(rejected)


class TestInAnEventLoop:
    """Calls that wait for their turn in an event loop, beside those that wait on threads."""

    def test_turns_are_given_in_the_order_of_arrival(self) -> None:
        admission, order = make(turns=1), list[int]()

        async def call(number: int) -> None:
            async with admission.turn(RequestContext(timeout_s=30)):
                order.append(number)

        async def run() -> None:
            first = admission.turn(RequestContext())
            await first.__aenter__()
            calls = [asyncio.create_task(call(number)) for number in range(3)]
            while admission.queued < len(calls):
                await asyncio.sleep(0.001)
            await asyncio.to_thread(first.__exit__)  # as a thread that runs the call ends its turn
            await asyncio.gather(*calls)

        asyncio.run(run())
        assert [0, 1, 2] == order

    @pytest.mark.parametrize("is_cancelled", [True, False])
    def test_a_call_that_is_cancelled_or_late_leaves_the_queue(self, is_cancelled: bool) -> None:
        admission = make(turns=1)
        context = RequestContext(timeout_s=30 if is_cancelled else 0.05)

        async def run() -> None:
            async with admission.turn(RequestContext()):
                if is_cancelled:
                    asyncio.get_running_loop().call_later(0.05, context.cancel)
                with pytest.raises(StatusError) as error:
                    async with admission.turn(context):
                        pass
                assert (Code.CANCELLED if is_cancelled else Code.DEADLINE_EXCEEDED) is error.value.code
                assert 0 == admission.queued
            async with admission.turn(RequestContext()):
                pass

        asyncio.run(run())
