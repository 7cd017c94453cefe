"""SIGTERM and SIGINT, received by a thread of their own.

A signal handler of Python runs on the main thread, between two steps of whatever that thread does: it waits for ever if
it needs a lock that the main thread holds at that moment. A thread that calls `sigwait` interrupts nothing.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

_SIGNALS = {signal.SIGTERM, signal.SIGINT}


class StopSignals:
    """Calls an action for each SIGTERM and SIGINT; it may be replaced later, and its errors are logged.

    Create this before the process has other threads: they inherit that these signals are blocked.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def _run(self) -> None:
        while True:
            signal.sigwait(_SIGNALS)
            try:
                self.action()
            except Exception:
                logger.exception("Failed to stop")
