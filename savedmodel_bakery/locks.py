"""Locks a file against other processes."""

from __future__ import annotations

import sys
from typing import IO


def lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed, or raise BlockingIOError if another process has locked it; not on Windows."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
