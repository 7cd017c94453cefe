"""Waits for events instead of sleeping for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], bool],
    *,
    timeout_s: float = 60,
    interval_s: float = 0.02,
    describe: Callable[[], object] = lambda: "the condition did not become true",
) -> None:
    """Return when `condition` is true.

    Raises:
        AssertionError: it is still false after `timeout_s`; the message is what `describe` returns then.
    """
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(describe())
        time.sleep(interval_s)
