"""Imports TensorFlow faster, and without the messages that it writes to stderr while it starts."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from savedmodel_bakery.interrupts import exit_on_interrupt

KERAS = ("keras", "tf_keras")
"""The packages of Keras, for `without`."""

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_EVERYTHING, _WARNINGS, _ERRORS_ONLY = "0", "1", "2"
_STDERR = 2
_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_WARNING_OR_ERROR = re.compile(rb"[WEF]\d{4} ")


def import_tensorflow(*, without: tuple[str, ...]) -> Any:
    """Import TensorFlow and list its devices, which logs errors if there is no GPU.

    The packages of `without` are not imported with it, but can still be imported afterwards.
    """
    is_first, collects_garbage = "tensorflow" not in sys.modules, gc.isenabled()
    gc.disable()
    try:
        with startup_log_hidden(), _hidden_modules(without):
            tensorflow = importlib.import_module("tensorflow")
            tensorflow.config.list_physical_devices()
        if is_first:
            # The new objects live until the end. Scanning them takes a tenth of the time of the import, and later would
            # block requests for a tenth of a second, and the exit for half a second.
            gc.freeze()
        return tensorflow
    finally:
        if collects_garbage:
            gc.enable()


@contextmanager
def warnings_hidden() -> Iterator[None]:
    """Hide what TensorFlow's Python code logs in the block, such as names of arguments and written files; no errors."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _hidden_modules(names: tuple[str, ...]) -> Iterator[None]:
    """Make imports of these modules fail in the block, unless they have been imported already."""
    modules: dict[str, Any] = sys.modules
    hidden = [name for name in names if name not in modules]
    # None makes the import of a module fail (docs.python.org/3/reference/import.html#the-module-cache).
    modules.update(dict.fromkeys(hidden))
    try:
        yield
    finally:
        for name in hidden:
            del modules[name]


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
    has_driver = _NVIDIA_DRIVER.exists()
    if os.environ.setdefault(_LEVEL, _WARNINGS if has_driver else _ERRORS_ONLY) == _EVERYTHING:
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(_STDERR)
    # The root file system may be read-only and /tmp full; only Linux has files in memory.
    has_memory_files = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("stderr"), "rb") if has_memory_files else tempfile.TemporaryFile() as captured:
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
                if not is_started or (has_driver and _WARNING_OR_ERROR.match(line)):
                    os.write(_STDERR, line)
