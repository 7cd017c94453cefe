"""Threads for calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, OverloadError

_IDLE_S = 5.0
_KEPT = 4  # however long they are idle

_Result = TypeVar("_Result")
_Inbox = SimpleQueue[Callable[[], None]]


class CallThreads(ThreadPoolExecutor):  # the only type that gRPC takes
    """Starts threads as they are needed; those that are idle for some time end.

    The thread that became idle last gets the next call, so that the others stay idle. If the system permits no more
    threads, calls wait for those that there are.

    Args:
        maximum: number of threads.
        name: of the threads.
        idle_s: seconds after which an idle thread ends.
    """

    def __init__(self, maximum: int, name: str, *, idle_s: float = _IDLE_S) -> None:
        super().__init__(maximum, name)
        self._maximum = maximum
        self._name = name
        self._idle_s = idle_s
        self._changing = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._idle: list[_Inbox] = []  # one per idle thread
        self._count = 0
        while self._count < min(maximum, _KEPT) and self._start():
            pass

    def check(self) -> None:
        """Check that there is a thread for one more call, or will be; start one if necessary.

        Raises:
            OverloadError: all are busy, and the system permits no more.
        """
        with self._changing:
            is_possible = self._idle or self._count >= self._maximum or self._start()
        if not is_possible:
            raise OverloadError("the system permits no more threads, and all are busy", RETRY_AFTER_S, limit="threads")

    def submit(self, function: Callable[..., _Result], /, *arguments: Any, **options: Any) -> Future[_Result]:
        """Call a function on a thread."""
        future: Future[_Result] = Future()
        call = partial(_run, future, partial(function, *arguments, **options))
        with self._changing:
            if self._idle or self._start():
                self._idle.pop().put(call)
            else:
                self._waiting.append(call)
        return future

    def _start(self) -> bool:
        """Start an idle thread; return False if there may be no more. Call it with the lock."""
        if self._count >= self._maximum:
            return False
        inbox: _Inbox = SimpleQueue()
        try:
            threading.Thread(target=self._work, args=(inbox,), name=self._name, daemon=True).start()
        except RuntimeError:  # can't start new thread
            return False
        self._count += 1
        self._idle.append(inbox)
        return True

    def _work(self, inbox: _Inbox) -> None:
        """Run calls until none has come for some time."""
        while True:
            try:
                inbox.get(timeout=self._idle_s)()
            except Empty:
                with self._changing:
                    if inbox in self._idle[_KEPT:]:  # otherwise a call has come just now
                        self._idle.remove(inbox)
                        self._count -= 1
                        return
            else:
                with self._changing:
                    if self._waiting:
                        inbox.put(self._waiting.popleft())
                    else:
                        self._idle.append(inbox)


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
