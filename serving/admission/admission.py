"""The places of one port: how many calls run and wait, and whether a call that waits would be answered in time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, Limits, OverloadError
from savedmodel_bakery.wire.status import Code, StatusError

_NEWEST_SHARE = 0.2  # of the last run in the estimate of a run's duration
# A call is admitted if its deadline leaves this many times the estimate: durations vary, and a shorter queue answers as
# many calls.
_MARGIN = 1.6
# A call counts as arriving for so long: callers who send slowly keep nobody out.
_ARRIVAL_S = 0.3


class _ThreadWaiter:
    """A call that waits on its thread, for a lock: a thread that an Event wakes waits for the Event's own lock next."""

    def __init__(self) -> None:
        self.has_turn = False
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it has been woken already
            self._asleep.release()

    def wait(self, timeout_s: float | None) -> None:
        self._asleep.acquire(timeout=-1 if timeout_s is None else timeout_s)


class _LoopWaiter:
    """A call that waits in the running event loop."""

    def __init__(self) -> None:
        self.has_turn = False
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake)

    async def wait(self, timeout_s: float | None) -> None:
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._wake)
        await self._woken
        if timer:
            timer.cancel()

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)


_Waiter = TypeVar("_Waiter", _ThreadWaiter, _LoopWaiter)


class Turn:
    """The right of a call to run, which it has as long as the `with` or `async with` block lasts."""

    def __init__(self, admission: Admission, context: RequestContext) -> None:
        self._admission = admission
        self._context = context
        self.run_s = 0.0

    def __enter__(self) -> None:
        self._admission._wait(self._context, self)
        self._context.turn = self

    def __exit__(self, *_: object) -> None:
        self._context.turn = None
        self._admission._end(self)

    async def __aenter__(self) -> None:
        waiter = self._admission._join(self._context, self, _LoopWaiter)
        if waiter:
            try:
                with self._context.on_cancel(waiter.wake):
                    await waiter.wait(self._context.remaining_s())
            except asyncio.CancelledError:  # the server stops
                self._context.cancel()
            self._admission._begin(self._context, self, waiter)
        self._context.turn = self

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    @contextmanager
    def passed_on(self) -> Iterator[None]:
        """Let others run within the `with` block; wait at its end."""
        with self._admission._lock:
            self._admission._stop(self)
        yield
        self._admission._wait(self._context, self, first=True)


class Admission:
    """Decides which calls of a port run, wait or are rejected.

    A call has a place from its arrival to its end, and runs only while it has a turn. It receives its message before
    its turn, so a caller that sends slowly delays nobody.
    """

    def __init__(self, limits: Limits, memory: MemoryBudget, *, turns: int) -> None:
        self.limits = limits
        self.memory = memory
        self.turns = min(turns, limits.threads)  # calls that run at the same time
        self.places = min(turns + limits.waiting_calls, limits.threads)  # calls that run or wait
        self._lock = threading.Lock()
        self._taken = 0
        self.running = 0  # calls that have their turn
        self._queue: deque[_ThreadWaiter | _LoopWaiter] = deque()
        self._arriving: dict[RequestContext, float] = {}  # when their messages began to arrive, in this order
        self._run_s: float | None = None
        self._started: dict[Turn, float] = {}

    @property
    def queued(self) -> int:
        """The number of calls that wait for their turn."""
        return len(self._queue)

    def enter(self, *, is_forced: bool = False) -> None:
        """Take a place for a call that has arrived; `leave` gives it back. Raises OverloadError if all are taken.

        A forced call takes one even then, because another call is about to leave.
        """
        with self._lock:
            if self._taken < self.places or is_forced:
                self._taken += 1
                return
            raise OverloadError(
                f"{self.turns} calls run and {self.places - self.turns} wait, which is the limit (--max_waiting_calls)",
                max(RETRY_AFTER_S, self._wait_s(len(self._queue))),
                limit="max_waiting_calls",
            )

    def leave(self, context: RequestContext | None = None) -> None:
        """Return the place of a call that has ended; `context` is that of a call that may still count as arriving."""
        with self._lock:
            self._taken -= 1
            if context:
                self._arriving.pop(context, None)

    def expect(self, context: RequestContext, timeout_s: float | None) -> None:
        """Raise OverloadError if a call, whose message has not been received, can't be answered within `timeout_s`."""
        now = time.monotonic()
        with self._lock:
            while self._arriving and now - next(iter(self._arriving.values())) > _ARRIVAL_S:
                del self._arriving[next(iter(self._arriving))]
            if self.running + len(self._arriving) >= self.turns:
                self._check_time(timeout_s, self._wait_s(len(self._queue) + len(self._arriving)))
            self._arriving[context] = now

    def turn(self, context: RequestContext) -> Turn:
        """Return a context manager, also an asynchronous one, that waits for a turn and ends it at its exit.

        Turns are given in the order of arrival.

        Entering it raises StatusError: RESOURCE_EXHAUSTED if the call's deadline would pass before its answer, or
        CANCELLED.
        """
        return Turn(self, context)

    def _wait(self, context: RequestContext, turn: Turn, *, first: bool = False) -> None:
        """Wait for a turn; `first` before those who wait already."""
        waiter = self._join(context, turn, _ThreadWaiter, first=first)
        if waiter:
            with context.on_cancel(waiter.wake):
                waiter.wait(context.remaining_s())
            self._begin(context, turn, waiter)

    def _join(
        self, context: RequestContext, turn: Turn, waiter_type: type[_Waiter], *, first: bool = False
    ) -> _Waiter | None:
        """Begin a turn and return None, or if there is none, join the queue, whose waiters are woken for their turn."""
        context.check()
        with self._lock:
            self._arriving.pop(context, None)
            if self.running < self.turns:
                self.running += 1
                self._started[turn] = time.monotonic()
                return None
            waiter = waiter_type()
            if first:
                self._queue.appendleft(waiter)
            else:
                self._check_time(context.remaining_s(), self._wait_s(len(self._queue)))
                self._queue.append(waiter)
            return waiter

    def _begin(self, context: RequestContext, turn: Turn, waiter: _ThreadWaiter | _LoopWaiter) -> None:
        """Begin the turn of a waiter that was woken; fail if it was woken for another reason, or too late."""
        with self._lock:
            try:
                context.check()
                self._check_time(context.remaining_s(), 0.0)
                if not waiter.has_turn:  # a timer may fire a little early
                    raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")
            except BaseException:
                if waiter.has_turn:
                    self._pass_on()
                else:
                    self._queue.remove(waiter)
                raise
            self._started[turn] = time.monotonic()

    def _end(self, turn: Turn) -> None:
        """End a run; its turn may have been passed on before."""
        with self._lock:
            self._stop(turn)
            run_s = turn.run_s
            self._run_s = run_s if self._run_s is None else self._run_s + _NEWEST_SHARE * (run_s - self._run_s)

    def _stop(self, turn: Turn) -> None:
        """End the present part of a run and pass its turn on, if the call has it. Call it with the lock."""
        started = self._started.pop(turn, None)
        if started is not None:
            turn.run_s += time.monotonic() - started
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn of a call to the next one. Call it with the lock."""
        if self._queue:
            waiter = self._queue.popleft()
            waiter.has_turn = True
            waiter.wake()
        else:
            self.running -= 1

    def _wait_s(self, before: int) -> float:
        """Estimate how long a call waits for its turn if `before` others wait before it. Call it with the lock."""
        return (before + 1) * self._estimated_run_s() / self.turns

    def _estimated_run_s(self) -> float:
        """Estimate how long a run takes: a moving average, or until one has ended, the age of those that run."""
        if self._run_s is not None:
            return self._run_s
        now = time.monotonic()
        return sum(now - started for started in self._started.values()) / max(1, len(self._started))

    def _check_time(self, remaining_s: float | None, wait_s: float) -> None:
        needed_s = _MARGIN * (wait_s + self._estimated_run_s())
        if remaining_s is not None and remaining_s < needed_s:
            raise OverloadError(
                f"the server is busy: an answer would take about {needed_s:.1f} s, but the deadline is in "
                f"{remaining_s:.1f} s",
                max(RETRY_AFTER_S, wait_s),
                limit="deadline",
            )
