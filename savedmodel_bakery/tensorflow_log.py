"""Hides what TensorFlow logs while it starts. Does not import TensorFlow."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from savedmodel_bakery.interrupts import exit_on_interrupt

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _WARNINGS, _ERRORS_ONLY = "0", "1", "2"
_STDERR = 2
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_WARNING_OR_ERROR = re.compile(rb"[WEF]\d{4} ")


def show_log() -> None:
    """Show TensorFlow's whole log, including what it logs while it starts. Call it before the import."""
    os.environ[_LEVEL] = _EVERYTHING


@contextmanager
def startup_log_hidden() -> Iterator[None]:
    """Discard what the block, which imports TensorFlow and lists its devices, writes to stderr.

    TensorFlow's libraries log before they read the log level: that oneDNN is on, and that there are no CUDA drivers.
    Nothing is hidden if the block raises an error, or if the environment variable TF_CPP_MIN_LOG_LEVEL is 0. On a
    machine with an NVIDIA driver, warnings and errors are shown, because they may say why a GPU is not used. By default
    TensorFlow logs errors only after the block, and warnings too on such a machine. If the block aborts the process,
    such as for an instruction that the CPU lacks, the text is lost.
    """
    level = _WARNINGS if _NVIDIA_DRIVER.exists() else _ERRORS_ONLY
    if os.environ.setdefault(_LEVEL, level) == _EVERYTHING:
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(_STDERR)
    with _open_buffer() as captured:
        os.dup2(captured.fileno(), _STDERR)
        is_started = False
        try:
            with exit_on_interrupt(stderr=stderr):
                yield
            is_started = True
        finally:
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            captured.seek(0)
            for line in captured:
                if not is_started or _may_concern_a_gpu(line):
                    os.write(_STDERR, line)


def _open_buffer() -> IO[bytes]:
    """Open a file in memory, as the root file system may be read-only and /tmp full; only Linux has such files."""
    has_memory_files = hasattr(os, "memfd_create")
    return os.fdopen(os.memfd_create("stderr"), "rb") if has_memory_files else tempfile.TemporaryFile()


def _may_concern_a_gpu(line: bytes) -> bool:
    return _NVIDIA_DRIVER.exists() and _WARNING_OR_ERROR.match(line) is not None
