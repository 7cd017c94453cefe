"""What one request may use: time, rows and memory; and whether its caller still waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.limits import OverloadError, too_large
from savedmodel_bakery.wire.status import Code, StatusError

if TYPE_CHECKING:
    from savedmodel_bakery.serving.access.access import Identity

_MAX_TIMEOUT_S = 365 * 24 * 3600.0  # a lock can't wait for centuries
_LITTLE_BYTES = 2**14  # not worth counting


class Turn(Protocol):
    """The right to run, which a request has for some time."""

    def passed_on(self) -> AbstractContextManager[None]:
        """Let others run within the `with` block; wait at its end."""


class RequestContext:
    """The context of one request; its methods may be called from any thread."""

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        memory: MemoryBudget | None = None,
        max_rows: int | None = None,
    ) -> None:
        self._deadline: float | None
        self.restart(timeout_s)
        self.identity: Identity | None = None  # if a token restricts what the caller may do
        self.model_name = ""  # that the request names, for metrics and the access log
        self.model_version: int | None = None  # that runs
        self._memory = memory
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self.is_cancelled = False  # whether the caller has gone
        self._on_cancel: list[Callable[[], None]] = []
        self.charged = 0  # bytes
        self.turn: Turn | None = None  # while it runs; others have it while the request waits for memory

    def remaining_s(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None without a deadline."""
        if self._deadline is None:
            return None
        remaining_s = self._deadline - time.monotonic()
        return remaining_s if remaining_s > 0.0 else 0.0

    def restart(self, timeout_s: float | None) -> None:
        """Replace the deadline by one in `timeout_s` seconds; None for none."""
        self._deadline = None if timeout_s is None else time.monotonic() + min(timeout_s, _MAX_TIMEOUT_S)

    def check(self) -> None:
        """Raise CANCELLED or DEADLINE_EXCEEDED if the caller no longer waits."""
        if self.is_cancelled:
            raise StatusError(Code.CANCELLED, "the caller has cancelled the request")
        if self._deadline is not None and self._deadline <= time.monotonic():
            raise StatusError(Code.DEADLINE_EXCEEDED, "Timed out waiting for notification")

    def cancel(self) -> None:
        """End the request: what waits ends at once, what runs as soon as it can."""
        with self._lock:
            if self.is_cancelled:
                return
            self.is_cancelled = True
            for callback in self._on_cancel:
                callback()

    @contextmanager
    def on_cancel(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` if the request is cancelled within the `with` block, or was before it; never after it."""
        with self._lock:
            self._on_cancel.append(callback)
            if self.is_cancelled:
                callback()
        try:
            yield
        finally:
            with self._lock:
                self._on_cancel.remove(callback)

    def check_model(self, name: str) -> None:
        """Raise PERMISSION_DENIED if the caller may not use the model of this name, whether it exists or not."""
        self.model_name = name
        if self.identity:
            self.identity.check_model(name)

    def covers(self, name: str) -> bool:
        """Return whether the caller may use the model of this name."""
        return self.identity is None or self.identity.covers(name)

    def check_rows(self, count: int) -> None:
        """Raise OverloadError if the request has too many rows, before they are filled up or run."""
        if self._max_rows is not None and count > self._max_rows:
            raise too_large(count, self._max_rows, "rows", limit="max_rows_per_request")

    def take_rows(self, count: int) -> None:
        """Count rows that are about to run against the caller's rows per second."""
        if self.identity:
            self.identity.take(count)

    def charge(self, size: int) -> None:
        """Take memory until the request ends; wait for it within the deadline.

        Raises:
            StatusError: RESOURCE_EXHAUSTED if it will not become free in time; CANCELLED.
        """
        if self.try_charge(size):
            return
        assert self._memory
        with self.turn.passed_on() if self.turn else nullcontext():
            try:
                self._memory.take(size, held=self.charged, timeout_s=self.remaining_s(), on_cancel=self.on_cancel)
            except OverloadError:
                if self.is_cancelled:
                    self.check()
                raise
            self.charged += size

    def try_charge(self, size: int) -> bool:
        """Take memory, if it is free now, until the request ends; little memory is free. Never waits."""
        if self._memory is None or size <= _LITTLE_BYTES:
            return True
        is_free = self._memory.try_take(size, held=self.charged)
        if is_free:
            self.charged += size
        return is_free

    def settle(self, size: int) -> None:
        """Give back all memory but `size` bytes, which the response takes until it has been sent."""
        surplus = self.charged - size
        if self._memory and surplus > 0:
            self.charged = size
            self._memory.give_back(surplus)

    def close(self) -> None:
        """End the request: give its memory back."""
        size, self.charged = self.charged, 0
        if self._memory and size:
            self._memory.give_back(size)


Handler = Callable[[Any, RequestContext], Any]
"""From a parsed request and its context to a response message; raises StatusError."""
