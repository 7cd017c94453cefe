"""The caller of a request: which models it may use, and how much."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from savedmodel_bakery.serving.access.tokens import Token
from savedmodel_bakery.serving.telemetry.registry import TOKEN_CALLS
from savedmodel_bakery.wire.status import Code, StatusError


class RateLimit:
    """A token bucket of one second: permits `per_second` units per second on average. Safe to use from several threads.

    A take of more units than the bucket contains when it is full is permitted once the bucket is full. The bucket is
    then in debt, and later takes wait until the debt is paid. So no request is too large, and the average still holds.
    Below 1 unit per second, the bucket contains one unit.
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


class Identity:
    """A caller; without a token, one that needs none and may use all models."""

    def __init__(self, token: Token | None = None) -> None:
        self.token = token
        self._calls = TOKEN_CALLS.labels(token.name) if token else None
        self._requests = _rate_limit(token.requests_per_second if token else None)
        self._rows = _rate_limit(token.rows_per_second if token else None)

    def __repr__(self) -> str:
        return f"Identity({self.token.name if self.token else ''!r})"

    def covers(self, name: str) -> bool:
        """Return whether the caller may use a model."""
        return not self.token or self.token.models is None or name in self.token.models

    def check_model(self, name: str) -> None:
        """Check that the caller may use a model. Call this before looking the model up: it may not exist."""
        if self.token and not self.covers(name):
            raise StatusError(
                Code.PERMISSION_DENIED, f'the token "{self.token.name}" does not cover the model "{name}"'
            )

    def take_request(self) -> None:
        """Count a request; RESOURCE_EXHAUSTED if the caller has sent its requests of this second."""
        if self._calls:
            self._calls.inc()
        if self._requests:
            self._take(self._requests, 1, "requests")

    def take(self, rows: int) -> None:
        """Count the rows of a request, before they are processed; RESOURCE_EXHAUSTED if they are too many now."""
        if self._rows:
            self._take(self._rows, rows, "rows")

    def _take(self, limit: RateLimit, units: int, unit: str) -> None:
        assert self.token
        retry_after_s = limit.take(units)
        if retry_after_s:
            raise StatusError(
                Code.RESOURCE_EXHAUSTED,
                f'the token "{self.token.name}" permits {limit.per_second:g} {unit} per second ({unit}_per_second in '
                "the tokens file)",
                retry_after_s=retry_after_s,
                limit=f"{unit}_per_second",
            )


def _rate_limit(per_second: float | None) -> RateLimit | None:
    return RateLimit(per_second) if per_second else None
