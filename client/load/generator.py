"""The load generator: callers that call at the same time, and what came of it. Must not know what they call.

A closed loop has each caller call again as soon as it was answered. An open loop has calls at a rate, whatever the
answers do; latency then counts from the time when a call was due, so that calls that had to wait for those before
them show it (Gil Tene's "coordinated omission").
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

Call = Callable[[int], None]
"""One call, by its number, which may choose what is asked; raises CallFailedError."""

NOT_SENT = "not sent"
_TICK_S = 0.1


class CallFailedError(Exception):
    """A call that brought no right answer.

    Attributes:
        status: a word or two that failures are counted by.
        message: what happened, for people.
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Plan:
    """How much load.

    Attributes:
        callers: calls at the same time.
        duration_s: when to send no more; None where `requests` says it alone.
        requests: how many calls at most; None where the duration says it alone.
        rate_per_s: of an open loop; None is a closed one.
    """

    callers: int
    duration_s: float | None = None
    requests: int | None = None
    rate_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.duration_s is None and self.requests is None:
            raise ValueError("neither duration_s nor requests was given, so the load would never end")


@dataclass(frozen=True)
class Load:
    """What came of a plan.

    Attributes:
        plan: what was asked for.
        latencies_s: float64 [calls], of calls with a right answer; of an open loop also of those that were due and
            not sent, which have waited until the end at least.
        ended_s: float64 [answered], when each right answer came, in seconds from the start.
        errors: how many calls failed, by status.
        messages: of each status the first message.
        elapsed_s: from the start to the last answer.
        late: calls of an open loop that were due while no caller was free.
        client_cpu_s: CPU time that this process used meanwhile.
    """

    plan: Plan
    latencies_s: np.ndarray
    ended_s: np.ndarray
    errors: Counter[str]
    messages: dict[str, str]
    elapsed_s: float
    late: int
    client_cpu_s: float


def generate(
    open_caller: Callable[[], AbstractContextManager[Call]],
    plan: Plan,
    *,
    progress: Callable[[float], None] = lambda _: None,
) -> Load:
    """Put load on something; each caller first makes one call that doesn't count, to be connected.

    Args:
        open_caller: makes what one caller calls by.
        plan: how much.
        progress: told ten times a second which part is done, 0 to 1.

    Raises:
        Exception: what a call raises beside CallFailedError.
    """
    with ExitStack() as stack:
        calls = [stack.enter_context(open_caller()) for _ in range(plan.callers)]
        pool = stack.enter_context(ThreadPoolExecutor(plan.callers))
        for first in [pool.submit(_connect, call) for call in calls]:
            first.result()
        cpu_before_s = time.process_time()
        pace = _Pace(plan)
        with pace.ended_at_last():
            notes = _watched([pool.submit(_work, call, pace) for call in calls], pace, progress)
        elapsed_s = time.perf_counter() - pace.started_s
        client_cpu_s = time.process_time() - cpu_before_s
    errors: Counter[str] = sum((note.errors for note in notes), Counter())
    unsent_s = pace.unsent_s(elapsed_s)
    if unsent_s:
        errors[NOT_SENT] = len(unsent_s)
    return Load(
        plan=plan,
        latencies_s=np.array([latency for note in notes for latency in note.latencies_s] + unsent_s),
        ended_s=np.sort(np.array([ended for note in notes for ended in note.ended_s])),
        errors=errors,
        messages={status: text for note in reversed(notes) for status, text in note.messages.items()},
        elapsed_s=elapsed_s,
        late=sum(note.late for note in notes),
        client_cpu_s=client_cpu_s,
    )


@dataclass
class _Notes:
    """What one caller notes."""

    latencies_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    messages: dict[str, str] = field(default_factory=dict)
    late: int = 0


class _Pace:
    """Hands out calls to callers: their numbers, and when they are due."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._given = 0
        self.started_s = time.perf_counter()
        self._end_s = self.started_s + plan.duration_s if plan.duration_s is not None else float("inf")

    @contextmanager
    def ended_at_last(self) -> Iterator[None]:
        """Let callers end when the block does, by whatever way."""
        try:
            yield
        finally:
            self._stopped.set()

    def take(self) -> tuple[int, float | None] | None:
        """The number of the next call, and when it is due (None is now); None where there is no more."""
        with self._lock:
            if self._stopped.is_set() or self._given == self._plan.requests or time.perf_counter() >= self._end_s:
                return None
            due_s = self._due_s(self._given)
            if due_s is not None and due_s >= self._end_s:
                return None
            self._given += 1
            return self._given - 1, due_s

    def wait_until(self, due_s: float) -> None:
        """Return when a call is due, or at the end."""
        self._stopped.wait(max(0.0, due_s - time.perf_counter()))

    def part(self) -> float:
        """How much is done, 0 to 1."""
        passed = (time.perf_counter() - self.started_s) / self._plan.duration_s if self._plan.duration_s else 0.0
        given = self._given / self._plan.requests if self._plan.requests else 0.0
        return min(1.0, max(passed, given))

    def unsent_s(self, elapsed_s: float) -> list[float]:
        """How long calls that no caller took had been due at the end; empty for a closed loop."""
        if self._plan.rate_per_s is None:
            return []
        due = int(np.ceil((self._plan.duration_s or elapsed_s) * self._plan.rate_per_s))
        last = due if self._plan.requests is None else min(due, self._plan.requests)
        return [elapsed_s - number / self._plan.rate_per_s for number in range(self._given, last)]

    def _due_s(self, number: int) -> float | None:
        return None if self._plan.rate_per_s is None else self.started_s + number / self._plan.rate_per_s


def _connect(call: Call) -> None:
    try:
        call(0)
    except CallFailedError:
        return  # which those that count will show


def _work(call: Call, pace: _Pace) -> _Notes:
    notes = _Notes()
    was_busy = False
    while (turn := pace.take()) is not None:
        number, due_s = turn
        now_s = time.perf_counter()
        if due_s is not None and due_s > now_s:
            pace.wait_until(due_s)
        elif due_s is not None and was_busy:
            notes.late += 1
        was_busy = True
        began_s = now_s if due_s is None else due_s
        try:
            call(number)
        except CallFailedError as exc:
            notes.errors[exc.status] += 1
            notes.messages.setdefault(exc.status, exc.message)
            continue
        ended_s = time.perf_counter()
        notes.latencies_s.append(ended_s - began_s)
        notes.ended_s.append(ended_s - pace.started_s)
    return notes


def _watched(workers: Sequence[Future[_Notes]], pace: _Pace, progress: Callable[[float], None]) -> list[_Notes]:
    """Wait for the workers; where one fails, for no other."""
    running = set(workers)
    while running:
        done, running = wait(running, timeout=_TICK_S, return_when=FIRST_EXCEPTION)
        for worker in done:
            worker.result()
        progress(pace.part())
    return [worker.result() for worker in workers]
