"""The load generator: how many calls it makes, when, and what it measures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from savedmodel_bakery.client.load import report
from savedmodel_bakery.client.load.generator import NOT_SENT, CallFailedError, Load, Plan, SendCall, generate


class Callee:
    """Records the numbers of calls except the first call of each caller."""

    def __init__(self, *, takes_s: float = 0.0, fails: tuple[int, ...] = ()) -> None:
        self.takes_s, self.fails = takes_s, fails
        self.numbers: list[int] = []
        self.opened = self.closed = 0
        self.threads: set[int] = set()

    @contextmanager
    def open_caller(self) -> Iterator[SendCall]:
        self.opened += 1
        connected = False

        def call(number: int) -> None:
            nonlocal connected
            if not connected:
                connected = True
                return
            self.numbers.append(number)
            self.threads.add(threading.get_ident())
            time.sleep(self.takes_s)
            if number in self.fails:
                raise CallFailedError("broken", f"call {number}")

        yield call
        self.closed += 1


def test_a_closed_loop_makes_the_planned_calls_and_closes_its_callers() -> None:
    callee = Callee(takes_s=0.01)
    load = generate(callee.open_caller, Plan(callers=4, requests=20))
    assert list(range(20)) == sorted(callee.numbers)
    assert (4, 4, 4) == (callee.opened, callee.closed, len(callee.threads))
    assert (20, 20, 0) == (len(load.latencies_s), len(load.ended_s), load.late)
    assert load.elapsed_s >= load.ended_s[-1] >= 5 * 0.01


def test_a_duration_ends_a_closed_loop() -> None:
    parts: list[float] = []
    load = generate(Callee(takes_s=0.01).open_caller, Plan(callers=2, duration_s=0.5), progress=parts.append)
    assert 0.5 <= load.elapsed_s
    assert 1.0 == parts[-1]
    assert parts == sorted(parts)


def test_failures_are_counted_by_status_and_have_no_latency() -> None:
    load = generate(Callee(fails=(3, 5)).open_caller, Plan(callers=1, requests=10))
    assert ({"broken": 2}, {"broken": "call 3"}) == (load.errors, load.messages)
    assert 8 == len(load.latencies_s) == len(load.ended_s)


def test_latency_in_an_open_loop_includes_waiting_for_other_calls() -> None:
    """Calls are due every 20 ms and take 100 ms each: with one caller, call N ends 100 (N + 1) after the start."""
    load = generate(Callee(takes_s=0.1).open_caller, Plan(callers=1, requests=5, rate_per_s=50))
    least_s = [0.1 * (number + 1) - 0.02 * number for number in range(5)]
    assert np.all(load.latencies_s >= np.array(least_s) - 0.002)
    assert 4 == load.late


def test_calls_that_were_due_but_not_sent_have_waited_until_the_end() -> None:
    """20 calls are due in 0.2 s; each takes 0.15 s, so one caller sends two at most."""
    load = generate(Callee(takes_s=0.15).open_caller, Plan(callers=1, duration_s=0.2, rate_per_s=100))
    sent = len(load.ended_s)
    assert sent <= 2
    assert {NOT_SENT: 20 - sent} == load.errors
    assert 20 == len(load.latencies_s)
    assert load.latencies_s[-1] >= load.elapsed_s - 0.19 - 0.002


def test_an_open_loop_sends_no_call_before_it_is_due() -> None:
    load = generate(Callee().open_caller, Plan(callers=2, requests=5, rate_per_s=50))
    assert np.all(load.ended_s >= np.arange(5) / 50 - 0.002)


def test_any_other_exception_ends_the_load() -> None:
    @contextmanager
    def open_caller() -> Iterator[SendCall]:
        calls = 0

        def call(_: int) -> None:
            nonlocal calls
            calls += 1
            if calls > 3:
                raise ZeroDivisionError

        yield call

    with pytest.raises(ZeroDivisionError):
        generate(open_caller, Plan(callers=3, duration_s=60))


def test_a_plan_without_a_limit_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="duration_s or requests is required"):
        Plan(callers=1)


def _load(latencies_s: list[float], errors: dict[str, int]) -> Load:
    return Load(
        plan=Plan(callers=2, requests=100),
        latencies_s=np.array(latencies_s),
        ended_s=np.arange(len(latencies_s)) / 10,
        errors=errors,
        messages={},
        elapsed_s=4.0,
        late=0,
        client_cpu_s=1.0,
    )


def test_percentiles_are_measured_latencies() -> None:
    load = _load([number / 1000 for number in range(100, 0, -1)], {})
    seen = [report.percentile_ms(load, percent) for percent in (50, 90, 99, 100)]
    assert [51.0, 91.0, 100.0, 100.0] == pytest.approx(seen)


def test_the_table_omits_columns_that_are_empty() -> None:
    rows = [report.summary(_load([0.1, 0.1], {"broken": 2}), images=3), report.summary(_load([], {}), images=3)]
    assert [
        "callers requests requests/s images/s p50 ms p90 ms p99 ms max ms client CPU % errors",
        "2 4 0.5 1.5 100.0 100.0 100.0 100.0 25.0 2 broken",
        "2 0 0.0 0.0 - - - - 25.0 none",
    ] == [" ".join(line.split()) for line in report.table(rows).splitlines()]
