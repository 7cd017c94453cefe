"""Holds calls back while the model server is unreachable. Knows no broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from savedmodel_bakery.serving.amqp.pauses import growing_pauses
from savedmodel_bakery.wire.status import StatusError

logger = logging.getLogger(__name__)

_MAX_PAUSE_S = 5.0


class Availability:
    """Whether the backend can be reached. It is checked before the first call, and after each call that failed.

    Args:
        check: see `Backend.check`.
        threads: where `check` runs.
    """

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
