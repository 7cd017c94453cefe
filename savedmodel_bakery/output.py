"""What a program does when its output can't be written."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def flush_or_discard(stream: TextIO) -> None:
    """Write what the stream still contains, or discard it, or the last flush of Python would change the exit code."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def os_error_text(error: OSError) -> str:
    """Return what to tell the user about an error.

    One without a file name is taken for one of stdout, which is then flushed, or its rest discarded.
    """
    if error.filename:
        return str(error)
    flush_or_discard(sys.stdout)
    return f"cannot write the output: {error.strerror or error}"
