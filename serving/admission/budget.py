"""The memory that requests may use together. A request takes its share before it uses it, and gives it back at its end.

A request may take more while it holds some. If all that hold memory wait for more, none could go on; so the one that
holds most is rejected, of equal ones the last.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.admission.limits import RETRY_AFTER_S, OverloadError

SHARE = 0.7  # of the memory of the machine or of the container, that the process may use by default
_CRITICAL_SHARE = 0.85
_MIN_SHARE = 0.1  # that requests may use however large the models are
_MIN_BURST_BYTES = 256 * 2**20  # more than photos of a megapixel take, so that these never need it again
_TRIM_DELAY_S = 5.0  # not between requests that follow each other: memory that returned must be cleared again
_SMALL_SHARE = 1 / 16  # of the budget: what a request may hold that does not wait for larger ones


class Cost:
    """What the parts of a request take of the memory, in bytes; each is charged before it is taken.

    tests/attacks/test_costs.py sends all kinds of requests to a server, and fails if one takes more than it is charged.
    """

    # Per byte
    MESSAGE = 2  # of a message over gRPC: the message, and strings that are parsed from it
    BODY = 2  # of a body over REST: as it is received, and as it is used
    UNPACKED = 2  # that is unpacked: in pieces, and joined
    UNPACKED_MESSAGE = 3  # of a message over gRPC that is unpacked: in pieces, joined, and parsed
    TENSOR = 2  # of a tensor: as it is decoded, and TensorFlow's copy
    IMAGE_BYTE = 4  # of an image file, or its base64, while the graph finds and converts the parts that it decodes
    NETWORK = 2  # of the largest tensor of a network: an operation's input and its output
    OUTPUT = 4  # of a model's outputs, while they are computed, encoded and sent
    RESPONSE = 2  # of a response until the client has read it: as it was made, and as it is sent

    # Per string of an output, beside its bytes: TensorFlow's object and Python's
    STRING = 64

    # Per pixel of an image while it is decoded and resized
    PIXEL = 6  # 4 to 6 were measured for three and four channels
    DEEP_PIXEL = 12  # of a PNG file of 16 bits, whose levels a recipe with `white` converts
    CANVAS_PIXEL = 9  # of a WebP file that may be transparent, or a GIF frame on a larger canvas; 8 to 8.1 measured
    ANIMATION_PIXEL = 13  # of an animated WebP file; 12.5 were measured
    # Of a JPEG file that is progressive, or has several scans; and for each of its components. libjpeg keeps all
    # coefficients: 5, 9 and 11 bytes per pixel were measured for one, three and four components.
    SCANS_PIXEL, COMPONENT_PIXEL = 4, 2


class _Waiter:
    """A request that waits for `size` bytes, and holds `held` meanwhile."""

    def __init__(self, size: int, held: int) -> None:
        self.size = size
        self.held = held
        self.is_granted = False
        self.woken = threading.Event()


class MemoryBudget:
    """A number of bytes that requests may hold together.

    A size of 0 is 70 % of the memory of the machine or of the process's control group, less what models use.
    """

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self._is_fixed = size > 0
        self._limit = process.memory_limit_bytes()
        self._lock = threading.Lock()
        self.held = 0  # by all requests
        self._peak = 0
        self._is_trimming = False
        self._busy_at = -math.inf  # when requests last held more than a quarter of the peak
        self._least_bytes = 0  # since the models were measured, after a trim
        self._queue: deque[_Waiter] = deque()
        self.measure_models()

    @property
    def queued(self) -> int:
        """The number of requests that wait for memory."""
        return len(self._queue)

    def check_possible(self, size: int) -> None:
        """Raise OverloadError if a request could never hold `size` bytes."""
        if size > self.size:
            raise OverloadError(
                f"the request needs {_mib(size)} MiB of memory; all requests together may use {_mib(self.size)} MiB "
                "(--memory_budget_bytes)",
                limit="memory_budget_bytes",
            )

    def try_take(self, size: int, *, held: int = 0) -> bool:
        """Take `size` bytes if they are free; raises OverloadError if they are more than the whole budget.

        A large request does not overtake those who wait; a small one does. `held` is what the request holds already.
        """
        with self._lock:
            is_free = self.held + size <= self.size and (not self._queue or self._is_small(held + size))
            if is_free:
                self._add(size)
        if not is_free:
            self.check_possible(size)
        return is_free

    def take(
        self,
        size: int,
        *,
        held: int,
        timeout_s: float | None,
        on_cancel: Callable[[Callable[[], None]], AbstractContextManager[None]],
    ) -> None:
        """Take `size` bytes; wait for them in the order of arrival. `held` is what the request holds already.

        `on_cancel` calls a function if the request is cancelled within its `with` block, or was before it.

        Raises:
            OverloadError: they will not become free in time, or the request is cancelled.
        """
        self.check_possible(held + size)
        if self.try_take(size, held=held):
            return
        waiter = _Waiter(size, held)
        with on_cancel(waiter.woken.set):
            with self._lock:
                self._queue.append(waiter)
                self._grant()
            waiter.woken.wait(timeout_s)
            with self._lock:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                    self._grant()
        if not waiter.is_granted:
            raise self._error(size)

    def give_back(self, size: int) -> None:
        """Give `size` bytes back; after a burst, return the process's free memory to the system."""
        with self._lock:
            if self._is_busy():
                self._busy_at = time.monotonic()
            self.held -= size
            self._grant()
            if self._is_trimming or self._is_busy():
                return
            self._is_trimming = True
        self._trim_in(_TRIM_DELAY_S)

    def trim(self) -> None:
        """Return free memory to the system, if the process has grown and requests have held little for a while."""
        with self._lock:
            is_busy, wait_s = self._is_busy(), self._busy_at + _TRIM_DELAY_S - time.monotonic()
        if wait_s > 0 and not is_busy:
            self._trim_in(wait_s)
            return
        if not is_busy and process.resident_bytes() > self._least_bytes + _MIN_BURST_BYTES:
            process.trim_memory()
            self._least_bytes = min(self._least_bytes, process.resident_bytes())
        with self._lock:
            self._peak, self._is_trimming = self.held, False

    def _trim_in(self, delay_s: float) -> None:
        trimming = threading.Timer(delay_s, self.trim)
        trimming.daemon = True
        try:
            trimming.start()
        except RuntimeError:  # the system allows no more threads; a later request tries again
            self._is_trimming = False

    def _is_busy(self) -> bool:
        return self.held > self._peak // 4

    def is_exceeded(self) -> bool:
        """Whether the process, with what is not counted here, uses nearly all the memory that it may use."""
        return process.resident_bytes() > _CRITICAL_SHARE * self._limit

    def measure_models(self) -> None:
        """Measure what the process uses beside its requests. Call it when models have been loaded or unloaded.

        Not while it is idle: TensorFlow keeps part of the memory that requests have used, for later requests.
        """
        with self._lock:
            self._least_bytes = process.resident_bytes()
            if not self._is_fixed:
                used_by_models = max(0, self._least_bytes - self.held)
                self.size = max(int(SHARE * self._limit) - used_by_models, int(_MIN_SHARE * self._limit))
            self._grant()

    def _error(self, size: int) -> OverloadError:
        return OverloadError(
            f"the request needs {_mib(size)} MiB more memory; of {_mib(self.size)} MiB for all requests, other "
            f"requests use {_mib(self.held)} MiB (--memory_budget_bytes)",
            RETRY_AFTER_S,
            limit="memory_budget_bytes",
        )

    def _add(self, size: int) -> None:
        self.held += size
        self._peak = max(self._peak, self.held)

    def _is_small(self, share: int) -> bool:
        return share <= _SMALL_SHARE * self.size

    def _grant(self) -> None:
        """Give memory to those who wait: the small ones, and the others in their order. Call it with the lock.

        Rejects who can't get it.
        """
        is_first = True
        for waiter in tuple(self._queue):
            share = waiter.held + waiter.size
            if share > self.size:  # models may have taken memory since it began to wait
                self._wake(waiter)
            elif self.held + waiter.size <= self.size and (is_first or self._is_small(share)):
                self._give(waiter)
            else:
                is_first = False
        holders = [waiter for waiter in self._queue if waiter.held]
        if holders and sum(waiter.held for waiter in holders) == self.held:
            fitting = next((waiter for waiter in holders if self.held + waiter.size <= self.size), None)
            if fitting:  # the first that waits holds nothing and needs more than is free
                self._give(fitting)
            else:
                self._wake(max(reversed(holders), key=lambda waiter: waiter.held))

    def _give(self, waiter: _Waiter) -> None:
        self._add(waiter.size)
        waiter.is_granted = True
        self._wake(waiter)

    def _wake(self, waiter: _Waiter) -> None:
        self._queue.remove(waiter)
        waiter.woken.set()


def _mib(size: int) -> int:
    return -(-size // 2**20)
