"""Threads for calls start when they are needed and end when they are idle, whatever the system permits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from waiting import wait_until

from savedmodel_bakery.serving.admission.limits import OverloadError
from savedmodel_bakery.serving.call.threads import CallThreads

KEPT = 4  # idle threads


def count(name: str) -> int:
    """Return how many threads of this name run."""
    return sum(thread.name == name for thread in threading.enumerate())


@contextmanager
def holding(threads: CallThreads, number: int) -> Iterator[None]:
    """Hold so many threads within the `with` block."""
    is_over = threading.Event()
    results = [threads.submit(is_over.wait, 10) for _ in range(number)]
    try:
        yield
    finally:
        is_over.set()
        assert [True] * number == [result.result(10) for result in results]


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Let no thread start within the `with` block."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        yield


def test_there_are_as_many_threads_as_calls_up_to_the_maximum() -> None:
    threads = CallThreads(10, "bounded")
    with holding(threads, 7):
        assert 7 == count("bounded")
    with holding(threads, 20):
        assert 10 == count("bounded")


def test_idle_threads_end_although_calls_come_all_the_time() -> None:
    threads = CallThreads(30, "idle", idle_s=0.2)
    with holding(threads, 30):
        assert 30 == count("idle")
    wait_until(lambda: threads.submit(count, "idle").result(10) == KEPT + 1)  # it runs on another one


def test_calls_one_after_another_start_no_threads() -> None:
    threads = CallThreads(30, "reused", idle_s=0.01)
    used = {threads.submit(threading.get_ident).result(10) for _ in range(1000)}
    assert KEPT == count("reused")
    assert KEPT >= len(used)


def test_the_result_and_the_error_of_a_call_are_in_its_future() -> None:
    threads = CallThreads(1, "futures")
    assert 7 == threads.submit(int, "111", base=2).result(10)
    assert isinstance(threads.submit(int, "x").exception(10), ValueError)


def test_a_call_that_is_cancelled_while_it_waits_does_not_run() -> None:
    threads, runs = CallThreads(1, "cancelled"), []
    with holding(threads, 1):
        assert threads.submit(runs.append, 1).cancel()
    assert 2 == threads.submit(abs, -2).result(10)
    assert [] == runs


def test_calls_run_although_no_thread_can_be_started() -> None:
    with no_more_threads():
        threads = CallThreads(10, "none")
    threads.check()  # starts one
    with no_more_threads():
        results = [threads.submit(abs, -number) for number in range(20)]
        assert list(range(20)) == [result.result(10) for result in results]


def test_a_call_for_which_no_thread_can_be_started_is_rejected() -> None:
    threads = CallThreads(10, "rejecting")
    with holding(threads, KEPT), no_more_threads(), pytest.raises(OverloadError, match="permits no more threads"):
        threads.check()
    threads.check()


def test_a_call_waits_if_there_are_as_many_threads_as_there_may_be() -> None:
    threads = CallThreads(2, "full")
    with holding(threads, 2), no_more_threads():
        threads.check()
