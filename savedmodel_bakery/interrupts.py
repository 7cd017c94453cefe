"""Ends an interrupted (Ctrl-C) program with one line and exit code 130. Imports little itself."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130

_stderr = 2


def _remove_generated_sources() -> None:
    """Remove what TensorFlow's AutoGraph has generated; it does so itself only if the process ends by itself."""
    for name, module in sys.modules.copy().items():
        if name.startswith("__autograph_generated_file"):
            source, compiled = str(module.__file__), str(module.__cached__)
            folder = os.path.dirname(compiled)  # noqa: PTH120 - pathlib takes time to import
            for remove, path in ((os.unlink, source), (os.unlink, compiled), (os.rmdir, folder)):
                with suppress(OSError):
                    remove(path)


_cleanups: list[Callable[[], object]] = [_remove_generated_sources]


def handle_interrupts() -> None:
    """Let an interrupt raise KeyboardInterrupt, but end the process at once during an import.

    An import has nothing to clean up, and C extensions turn a KeyboardInterrupt into other errors, or abort. Does
    nothing where SIGINT is ignored, as in a background job, or handled by another program.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_or_exit)


@contextmanager
def exit_on_interrupt(*, stderr: int = _stderr) -> Iterator[None]:
    """In the block, an interrupt runs the pending clean-ups and ends the process without a KeyboardInterrupt.

    For work with TensorFlow, which may turn a KeyboardInterrupt into another error, or ignore it and go on, and for
    asyncio, where it may leave behind half-made objects, which then complain. `stderr` is the file descriptor for the
    line.
    """
    global _stderr
    is_main = threading.current_thread() is threading.main_thread()
    handler, descriptor = signal.getsignal(signal.SIGINT), _stderr
    if not is_main or handler not in (signal.default_int_handler, _raise_or_exit, _exit):
        yield
        return
    _stderr = stderr
    signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _stderr = descriptor


@contextmanager
def interrupt_on_termination() -> Iterator[None]:
    """In the block, SIGTERM, which cancelled jobs and stopped services get, is handled as an interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _interrupt(*_: object) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a script
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def cleaning_up(action: Callable[[], object]) -> Iterator[None]:
    """Call `action` after the block, also if the process is ended in it by `exit_now`. It may be called twice."""
    _cleanups.append(action)
    try:
        yield
    finally:
        action()
        _cleanups.remove(action)


def exit_now(code: int) -> NoReturn:
    """Run the pending clean-ups, the latest first, and end the process; for signal handlers."""
    for action in reversed(_cleanups):
        with suppress(Exception):
            action()
    os._exit(code)


def ignore_traceback_of_next_interrupt() -> None:
    """Let the next interrupt end the process as a program without a handler, for an exit that takes long."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _raise_or_exit(number: int, frame: FrameType | None) -> NoReturn:
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            _exit(number, frame)
        caller = caller.f_back
    raise KeyboardInterrupt


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    with suppress(OSError):  # nobody reads it any more, such as a `tee` that was interrupted too
        os.write(_stderr, b"\ninterrupted\n")
    exit_now(INTERRUPTED)
