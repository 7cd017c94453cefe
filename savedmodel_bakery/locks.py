"""Locks a file against other processes."""

from __future__ import annotations

import sys
from typing import IO


def lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed; not on Windows.

    Raises:
        BlockingIOError: another process has locked it.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
