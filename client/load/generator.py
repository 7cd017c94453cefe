"""The load generator: concurrent callers, and the latencies and errors they measure. Does not import a transport.

In a closed loop each caller sends its next call when it has the response to the last one. In an open loop calls are
sent at a fixed rate, whether or not responses arrive. Latency then counts from the time at which a call was due, so it
includes the time that a call waited for the calls before it (Gil Tene's "coordinated omission").
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field

import numpy as np

SendCall = Callable[[int], None]
"""Sends the call with this number, which may select its content; raises CallFailedError."""

NOT_SENT = "not sent"
_PROGRESS_INTERVAL_S = 0.1


class CallFailedError(Exception):
    """A call failed, or its response was wrong. Failures are counted by `status`, a word or two."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Plan:
    """The amount of load. `rate_per_s` is that of an open loop, None for a closed one."""

    callers: int
    duration_s: float | None = None
    requests: int | None = None
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.duration_s is None and self.requests is None:
            raise ValueError("duration_s or requests is required: without a limit the load would never end")


@dataclass(frozen=True)
class Load:
    """The measurements of one plan."""

    plan: Plan
    # Of the successful calls; in an open loop also of calls that were due but not sent: they waited until the end.
    latencies_s: np.ndarray
    ended_s: np.ndarray  # when each response arrived, from the start, sorted
    errors: Counter[str]  # failed calls by status
    messages: dict[str, str]  # the first of each status
    elapsed_s: float  # to the last response
    late: int  # calls of an open loop that were due while no caller was free
    client_cpu_s: float


def generate(
    open_caller: Callable[[], AbstractContextManager[SendCall]],
    plan: Plan,
    *,
    progress: Callable[[float], None] = lambda _: None,
) -> Load:
    """Run a plan. Before it starts, each caller makes one call that is not measured, to open its connection.

    `open_caller` creates the function with which one caller sends its calls; exceptions other than CallFailedError end
    the load. `progress` is called ten times per second with the completed fraction, 0 to 1.
    """
    with ExitStack() as stack:
        callers = [stack.enter_context(open_caller()) for _ in range(plan.callers)]
        pool = stack.enter_context(ThreadPoolExecutor(plan.callers))
        for warm_up in [pool.submit(send, 0) for send in callers]:
            with suppress(CallFailedError):  # the measured calls will report it
                warm_up.result()
        cpu_before_s = time.process_time()
        schedule = _Schedule(plan)
        try:
            running = [pool.submit(_run_caller, send, schedule) for send in callers]
            measurements = _wait(running, schedule, progress)
        finally:
            schedule.stopped.set()
        elapsed_s = time.perf_counter() - schedule.started_s
        client_cpu_s = time.process_time() - cpu_before_s
    errors: Counter[str] = sum((measured.errors for measured in measurements), Counter())
    unsent_s = schedule.unsent_s(elapsed_s)
    if unsent_s:
        errors[NOT_SENT] = len(unsent_s)
    return Load(
        plan=plan,
        latencies_s=np.array([latency for measured in measurements for latency in measured.latencies_s] + unsent_s),
        ended_s=np.sort(np.array([ended for measured in measurements for ended in measured.ended_s])),
        errors=errors,
        messages={status: text for measured in reversed(measurements) for status, text in measured.messages.items()},
        elapsed_s=elapsed_s,
        late=sum(measured.late for measured in measurements),
        client_cpu_s=client_cpu_s,
    )


@dataclass
class _Measurements:
    """The measurements of one caller; see `Load`."""

    latencies_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    late: int = 0


class _Schedule:
    """Assigns calls to callers: their numbers and when they are due."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self.stopped = threading.Event()  # no caller starts another call, or waits for one
        self._assigned = 0
        self.started_s = time.perf_counter()
        self._end_s = self.started_s + plan.duration_s if plan.duration_s is not None else float("inf")

    def next_call(self) -> tuple[int, float | None] | None:
        """Return the number of the next call and when it is due (None for now), or None if there are no more calls."""
        with self._lock:
            if self.stopped.is_set() or self._assigned == self._plan.requests or time.perf_counter() >= self._end_s:
                return None
            rate_per_s = self._plan.rate_per_s
            due_s = None if rate_per_s is None else self.started_s + self._assigned / rate_per_s
            if due_s is not None and due_s >= self._end_s:
                return None
            self._assigned += 1
            return self._assigned - 1, due_s

    def completed(self) -> float:
        """Return the completed fraction, 0 to 1."""
        time_part = (time.perf_counter() - self.started_s) / self._plan.duration_s if self._plan.duration_s else 0.0
        calls_part = self._assigned / self._plan.requests if self._plan.requests else 0.0
        return min(1.0, max(time_part, calls_part))

    def unsent_s(self, elapsed_s: float) -> list[float]:
        """Return for how long each call that was never sent had been due at the end; empty for a closed loop."""
        if self._plan.rate_per_s is None:
            return []
        due = int(np.ceil((self._plan.duration_s or elapsed_s) * self._plan.rate_per_s))
        last = due if self._plan.requests is None else min(due, self._plan.requests)
        return [elapsed_s - number / self._plan.rate_per_s for number in range(self._assigned, last)]


def _run_caller(send: SendCall, schedule: _Schedule) -> _Measurements:
    measured = _Measurements()
    was_busy = False
    while (scheduled := schedule.next_call()) is not None:
        number, due_s = scheduled
        now_s = time.perf_counter()
        if due_s is not None and due_s > now_s:
            schedule.stopped.wait(due_s - now_s)
        elif due_s is not None and was_busy:
            measured.late += 1
        was_busy = True
        began_s = now_s if due_s is None else due_s
        try:
            send(number)
        except CallFailedError as exc:
            measured.errors[exc.status] += 1
            measured.messages.setdefault(exc.status, exc.message)
            continue
        ended_s = time.perf_counter()
        measured.latencies_s.append(ended_s - began_s)
        measured.ended_s.append(ended_s - schedule.started_s)
    return measured


def _wait(
    callers: Sequence[Future[_Measurements]], schedule: _Schedule, progress: Callable[[float], None]
) -> list[_Measurements]:
    """Wait for all callers and return their measurements; raise at once if one fails."""
    running = set(callers)
    while running:
        done, running = wait(running, timeout=_PROGRESS_INTERVAL_S, return_when=FIRST_EXCEPTION)
        for caller in done:
            caller.result()
        progress(schedule.completed())
    return [caller.result() for caller in callers]
