"""Reads files that people write (recipes, labels, settings), parses TOML, and locks files."""

from __future__ import annotations

import errno
import re
import sys
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 2**24
"""Limit of `read_small`; files that people don't write may have any size."""

_MAX_PARTS = 64
# The parser takes a time and a memory that grow with the square of a key's length.
_LONG_KEY = re.compile(rf"""(?:[\w"'-]+[ \t]*\.[ \t]*){{{_MAX_PARTS}}}""")


def read_small(path: Path) -> bytes:
    """Return the content of a file; refuse one of more than `MAX_BYTES` with OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"the file has more than {MAX_BYTES} bytes, the limit for such files", str(path))
    return content


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML, on Python 3.10 with the package that preceded the standard library's. Raises ValueError."""
    if _LONG_KEY.search(text):
        raise ValueError(f"it has a key of more than {_MAX_PARTS} parts")
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed, or raise BlockingIOError if another process has locked it; not on Windows."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
