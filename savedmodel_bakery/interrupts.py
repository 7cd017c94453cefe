"""Ends a program that is interrupted (Ctrl-C) while it imports its modules. Imports little itself."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130
_STDERR = 2


@contextmanager
def exit_on_interrupt(*, stderr: int = _STDERR) -> Iterator[None]:
    """In the block, an interrupt prints one line and ends the process at once with exit code 130.

    For imports only, which have nothing to clean up. A KeyboardInterrupt is not enough: C extensions turn it into other
    errors, or abort. Does nothing where SIGINT is ignored, as in a background job, or handled by another program.

    Args:
        stderr: file descriptor for the line.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def end(*_: object) -> None:
        os.write(stderr, b"\ninterrupted\n")
        os._exit(INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
