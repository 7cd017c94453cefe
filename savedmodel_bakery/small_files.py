"""Reads files that people write: recipes, labels, settings. Others of the same name may have any size."""

from __future__ import annotations

import errno
from pathlib import Path

MAX_BYTES = 2**24


def read_small(path: Path) -> bytes:
    """Return the content of a file; refuse one of more than `MAX_BYTES` with OSError."""
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"the file has more than {MAX_BYTES} bytes, the limit for such files", str(path))
    return content
