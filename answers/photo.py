"""A photo of a bulk job: its key and how to read it.

A photo's key identifies it in the results. It is its path, or the path of its archive and its path in the archive, such
as `photos.tar/cats/1.jpg`, so that it is the same in each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import Any

# Far larger than any image that a baked servable decodes, and small enough to keep in memory.
MAX_PHOTO_BYTES = 256 << 20

IMAGE_SUFFIXES = frozenset(
    {".avif", ".bmp", ".dib", ".gif", ".heic", ".heif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"}
    | {".pnm", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Suffixes of the files that are taken from folders and archives. Models reject some of these formats, which is
reported in the rows."""

IsWanted = Callable[[str], bool]
"""Returns whether to read the photo with this key; is called once per photo."""


class UnreadablePhotoError(Exception):
    """A photo cannot be read; the text is the reason."""


@dataclass(frozen=True)
class Photo:
    """One photo."""

    key: str  # identifies the photo in the results
    n_bytes: int  # approximate; 0 if unknown
    read: Callable[[], bytes]  # works in any thread; raises UnreadablePhotoError
    columns: Mapping[str, Any] = field(default_factory=dict)  # its other values in the list that names it


def is_image_name(name: str) -> bool:
    """Return whether the name of a file has the suffix of an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122 - no Path per file


def path_key(path: str | Path) -> str:
    """Return a path as text, with escapes for bytes that are not valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def unreadable_photo(key: str, reason: str) -> Photo:
    """Return a photo whose `read` raises UnreadablePhotoError."""

    def read() -> bytes:
        raise UnreadablePhotoError(reason)

    return Photo(key, 0, read)


def oversized_photo(key: str, n_bytes: int) -> Photo:
    """Return an unreadable photo for a file above the size limit."""
    return unreadable_photo(key, f"too large: {n_bytes} bytes; the limit is {MAX_PHOTO_BYTES}")


def file_photo(key: str, path: Path) -> Photo:
    """Return the photo in a file, which is read later."""
    try:
        status = path.stat()
    except OSError as exc:
        return unreadable_photo(key, f"cannot be read: {reason_of(exc)}")
    if not S_ISREG(status.st_mode):
        return unreadable_photo(key, "cannot be read: not a file, or a folder that cannot be listed")
    if status.st_size > MAX_PHOTO_BYTES:
        return oversized_photo(key, status.st_size)
    return Photo(key, status.st_size, partial(_read, path))


def reason_of(exc: BaseException) -> str:
    """Return the reason in an exception, without errno and file name."""
    return (exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)) or type(exc).__name__


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UnreadablePhotoError(f"cannot be read: {reason_of(exc)}") from exc
