"""Holds calls back while the model server is unreachable. Knows no broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tenacity import AsyncRetrying, RetryCallState, retry_if_result, wait_exponential_jitter

from savedmodel_bakery.wire.status import StatusError

logger = logging.getLogger(__name__)

_pause = wait_exponential_jitter(multiplier=0.5, max=5.0, jitter=0.5)


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
            while not self._is_checked:
                self._is_checked = True  # unless a running call fails meanwhile
                await AsyncRetrying(retry=retry_if_result(bool), wait=_pause, before_sleep=_log)(self._run_check)

    async def _run_check(self) -> StatusError | None:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._check)


def _log(state: RetryCallState) -> None:
    assert state.outcome is not None
    assert state.next_action is not None
    error, pause_s = state.outcome.result(), state.next_action.sleep
    logger.warning("the model server is unreachable: %s; checking again in %.1f s", error.text, pause_s)
