"""Threads for calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, OverloadError

_IDLE_S = 5.0
_KEPT = 4  # idle threads

_Result = TypeVar("_Result")


class CallThreads(ThreadPoolExecutor):  # the only type that gRPC takes
    """Starts threads as they are needed, and ends those that were not needed for `idle_s` or up to three times as long.

    If the system permits no more threads, calls wait for those that there are.
    """

    def __init__(self, maximum: int, name: str, *, idle_s: float = _IDLE_S) -> None:
        super().__init__(maximum, name)
        self._maximum = maximum
        self._name = name
        self._idle_s = idle_s
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changing = threading.Lock()
        self._count = 0
        self._free = 0  # threads less calls; negative while calls wait
        self._fewest = 0  # free ones, of late
        self._surplus = 0
        self._counted_until = 0.0
        while self._count < min(maximum, _KEPT) and self._start():
            pass

    def check(self) -> None:
        """Raise OverloadError if no thread is or becomes free for one more call; start one if necessary."""
        with self._changing:
            is_possible = self._free > 0 or self._count >= self._maximum or self._start()
        if not is_possible:
            raise OverloadError("the system permits no more threads, and all are busy", RETRY_AFTER_S, limit="threads")

    def submit(self, function: Callable[..., _Result], /, *arguments: Any, **options: Any) -> Future[_Result]:
        """Call a function on a thread."""
        future: Future[_Result] = Future()
        with self._changing:
            if self._free <= 0:
                self._start()
            self._free -= 1
            self._fewest = min(self._fewest, self._free)
        self._calls.put(partial(_run, future, partial(function, *arguments, **options)))
        return future

    def _start(self) -> bool:
        """Start a thread; return False if there may be no more. Call it with the lock."""
        if self._count >= self._maximum:
            return False
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        except RuntimeError:  # can't start new thread
            return False
        self._count += 1
        self._free += 1
        return True

    def _work(self) -> None:
        """Run calls until this thread is not needed."""
        while True:
            ended = 0
            try:
                self._calls.get(timeout=self._idle_s)()
                ended = 1
            except Empty:
                pass
            with self._changing:
                self._free += ended
                if self._is_surplus():
                    self._count -= 1
                    self._free -= 1
                    self._fewest -= 1
                    return

    def _is_surplus(self) -> bool:
        """Return whether a thread is to end. Call it with the lock."""
        now = time.monotonic()
        if now > self._counted_until:
            self._surplus, self._fewest = self._fewest - _KEPT, self._free
            self._counted_until = now + self._idle_s
        if self._surplus <= 0 or self._free <= _KEPT:
            return False
        self._surplus -= 1
        return True


def _run(future: Future[_Result], call: Callable[[], _Result]) -> None:
    """Call a function for a future, unless that has been cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future  # which the traceback of its error would keep
    else:
        future.set_result(result)
