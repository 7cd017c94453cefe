"""Pauses between attempts to reach the broker or the model server; holds calls back while the server is unreachable."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from savedmodel_bakery.wire.status import StatusError

logger = logging.getLogger(__name__)

_MAX_PAUSE_S = 5.0


def growing_pauses(max_s: float) -> Iterator[float]:
    """Yield seconds to wait: half a second, then twice as long each time up to `max_s`.

    Each is up to a quarter shorter or longer, so that several workers do not try at the same time.
    """
    pause_s = 0.5
    while True:
        yield pause_s * random.uniform(0.75, 1.25)
        pause_s = min(2 * pause_s, max_s)


class Availability:
    """Whether the backend can be reached. It is checked before the first call, and after each call that failed."""

    def __init__(self, check: Callable[[], StatusError | None], threads: ThreadPoolExecutor) -> None:
        self._check = check
        self._threads = threads
        self._is_checked = False
        self._checking = asyncio.Lock()

    def doubt(self) -> None:
        """Check before the next call."""
        self._is_checked = False

    async def wait(self) -> None:
        """Return when the backend is reachable."""
        async with self._checking:
            pauses = growing_pauses(_MAX_PAUSE_S)
            while not self._is_checked:
                self._is_checked = True  # unless a running call fails meanwhile
                error = await asyncio.get_running_loop().run_in_executor(self._threads, self._check)
                if error:
                    self._is_checked = False
                    pause_s = next(pauses)
                    logger.warning("the model server is unreachable: %s; checking again in %.1f s", error.text, pause_s)
                    await asyncio.sleep(pause_s)
