"""Limits a rate by a token bucket that contains one second's worth."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class RateLimit:
    """Permits `per_second` units per second on average. Safe to use from several threads.

    A take of more units than the bucket contains when it is full is permitted once the bucket is full. The bucket is
    then in debt, and later takes wait until the debt is paid. So no request is too large, and the average still holds.

    Args:
        per_second: more than 0. Below 1, the bucket contains one unit.
        clock: returns seconds, and never goes backwards.
    """

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_second = per_second
        self._capacity = max(per_second, 1.0)
        self._clock = clock
        self._lock = threading.Lock()
        self._level = self._capacity
        self._filled_at = clock()

    def take(self, units: float) -> float:
        """Take units and return 0, or take none and return the seconds until they can be taken."""
        with self._lock:
            now = self._clock()
            self._level = min(self._capacity, self._level + (now - self._filled_at) * self.per_second)
            self._filled_at = now
            missing = min(units, self._capacity) - self._level
            if missing > 0:
                return missing / self.per_second
            self._level -= units
            return 0.0
