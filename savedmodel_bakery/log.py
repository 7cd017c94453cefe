"""The log of a process: where it goes, and that no value in it can forge a line or control a terminal."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import TextIO

SERVER_FORMAT = "%(asctime)s %(levelname)s %(name)s] %(message)s"

_NOT_ASCII = re.compile(r"[^ -~]")
_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def escape(text: str) -> str:
    r"""Return a text on one line: characters that aren't printable become escapes such as `\n`, as in `repr`."""
    return _NOT_ASCII.sub(lambda match: match[0] if match[0].isprintable() else repr(match[0])[1:-1], text)


class EscapingFormatter(logging.Formatter):
    """Escapes each message, and indents the lines of tracebacks, so that every other line is a message of the log."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Return a record's line without its traceback."""
        return escape(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:  # noqa: N802
        """Return a traceback."""
        return _indent(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        """Return a stack."""
        return _indent(super().formatStack(stack_info))


def open_closed_streams() -> None:
    """Open the standard streams that were closed before the start on /dev/null.

    Without that, a socket or a file would get the number of stdout or stderr, and the output of libraries would go
    there; Python prints what is for a missing stderr on stdout.
    """
    for descriptor, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def configure(level: int, log_format: str) -> None:
    """Write the messages of all loggers to stderr, which `open_closed_streams` opens if it was closed."""
    open_closed_streams()
    handler: logging.StreamHandler[TextIO] = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EscapingFormatter(log_format))
    logging.basicConfig(level=level, handlers=[handler])


def _indent(text: str) -> str:
    return "\n".join(f"  {escape(line)}" for line in text.split("\n"))
