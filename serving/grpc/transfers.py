"""Where gRPC calls run, how long their messages and responses may take, and the memory of those that wait."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import READING_S, OverloadError
from savedmodel_bakery.serving.call.threads import CallThreads

_WATCH_INTERVAL_S = 0.1
_TRIM_INTERVAL_S = 2.0


class Transfers:
    """Cancels calls whose messages do not arrive in time, or when there is no memory for more, or are not read in time.

    While requests wait for memory, the largest response that its client reads slowly is cancelled too. `timeout_s` is
    for a message, and for a response.

    gRPC has no limit for these: it reports the size of a message when all of it has arrived, and keeps a response until
    the client reads it.
    """

    def __init__(self, timeout_s: float, memory: MemoryBudget) -> None:
        self._timeout_s = timeout_s
        self._memory = memory
        self._started: dict[Any, float] = {}
        self._sending: dict[Any, RequestContext] = {}
        threading.Thread(target=self._run, name="grpc-transfers", daemon=True).start()

    def receive(self, messages: Iterator[bytes], call: Any) -> bytes | None:
        """Return the message of a call; None if it ends without one."""
        with self.limited(call):
            return next(messages, None)

    def cancel_longest(self) -> bool:
        """Cancel a call that waits for its message; return whether there was one.

        It is the oldest of the connection with most of them: the message of another caller's only call may be here.
        """
        waiting = [call for call in self._started.copy() if call not in self._sending]
        if not waiting:
            return False
        longest = _of_busiest_peer(waiting)[0]
        if self._started.pop(longest, None) is None:
            return False
        longest.cancel()
        return True

    def limited(self, call: Any) -> _Started:
        """Cancel a call if the `with` block takes as long as a message may take to arrive."""
        return _Started(self._started, call)

    def watch(self, call: Any, context: RequestContext) -> None:
        """Cancel the context of a call when the call ends."""
        if not call.add_callback(partial(self._end, call, context)):
            context.cancel()

    def send(self, call: Any, context: RequestContext) -> None:
        """Close the context of a watched call, and so give its memory back, when its response has been sent."""
        self._started[call] = time.monotonic()
        self._sending[call] = context
        if context.is_cancelled:  # the call has ended already
            self._end(call, context)

    def _end(self, call: Any, context: RequestContext) -> None:
        context.cancel()
        self._started.pop(call, None)
        if self._sending.pop(call, None):  # the model no longer runs
            context.close()

    def _run(self) -> None:
        trim_at = 0.0
        while True:
            time.sleep(_WATCH_INTERVAL_S)
            now = time.monotonic()
            slow = [call for call, started in self._started.copy().items() if now - started > _WATCH_INTERVAL_S]
            for call in slow:
                if now - self._started.get(call, now) > self._timeout_s:
                    call.cancel()
            if len(slow) > 1 and self._memory.is_exceeded():
                _of_busiest_peer(slow)[-1].cancel()
            if self._memory.queued:
                self._cancel_largest_unread(now)
            if now > trim_at:  # calls that are rejected take memory too
                self._memory.trim()
                trim_at = now + _TRIM_INTERVAL_S

    def _cancel_largest_unread(self, now: float) -> None:
        """Cancel the call with the largest of the responses that clients read slowly."""
        unread = [
            (context.charged, call)
            for call, context in self._sending.copy().items()
            if context.charged and now - self._started.get(call, now) > READING_S
        ]
        if unread:
            _, largest = max(unread, key=itemgetter(0))
            largest.cancel()


class _Started:
    """Notes when a `with` block has started, as long as it lasts."""

    def __init__(self, started: dict[Any, float], call: Any) -> None:
        self._started = started
        self._call = call

    def __enter__(self) -> None:
        self._started[self._call] = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._started.pop(self._call, None)


def _of_busiest_peer(calls: list[Any]) -> list[Any]:
    """Return the calls of the connection with most of the calls, so that no other caller pays for them.

    Of connections with equally many calls, it is the one with the oldest call: the message of the other may be small.
    Calls are given and returned from the oldest to the newest.
    """
    calls_by_peer = Counter(call.peer() for call in calls)
    busiest = max(calls_by_peer, key=calls_by_peer.__getitem__)
    return [call for call in calls if call.peer() == busiest]


class Lane:
    """Where a kind of calls runs: runs of models never delay other calls, such as the status of a model.

    It has as many threads as places, because a call holds its thread while its message arrives.
    """

    def __init__(self, admission: Admission, name: str, timeout_s: float) -> None:
        self.admission = admission
        self.threads = CallThreads(admission.places, name)
        self.transfers = Transfers(timeout_s, admission.memory)

    def enter(self) -> None:
        """Take a place for a call that has arrived, if there is a thread for it."""
        self.admission.enter()
        try:
            self.threads.check()
        except OverloadError:
            self.admission.leave()
            raise
