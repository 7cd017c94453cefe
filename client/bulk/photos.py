"""The photos in a file: itself, or the members of an archive, or the rows of a Parquet file. Must not know a server.

A photo's key is its path, or that of its archive and its own in there, `photos.tar/cats/1.jpg`; it stays the same from
one run to the next, and tells photos apart. A Parquet file is such an archive.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any

# Far beyond any picture that a baked servable decodes, and small enough to be held.
MAX_PHOTO_BYTES = 256 << 20

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# What the libraries raise for damaged, encrypted and unknown content; fuzzed.
_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError),
    *(EOFError, IndexError, OSError, RuntimeError, ValueError),
)

IsWanted = Callable[[str], bool]


class UnreadablePhoto(Exception):  # noqa: N818 - the name says what happened
    """A photo's bytes can't be had, for a reason in words."""


@dataclass(frozen=True)
class Photo:
    """One photo that is asked about.

    Attributes:
        key: what its row is called.
        n_bytes: its size, about; 0 where it isn't known.
        read: gives its bytes, from any thread; raises UnreadablePhoto.
    """

    key: str
    n_bytes: int
    read: Callable[[], bytes]


def open_file(path: Path, is_wanted: IsWanted) -> Iterator[Photo]:
    """The photos in a file, one after the other; an archive is read through once.

    What can't be read is a photo that says so when it is read, under its archive's key where that is damaged.

    Args:
        path: of a tar (also compressed), zip or Parquet file, known by its suffix, or of a photo.
        is_wanted: asked about each key; what isn't wanted isn't read.

    Raises:
        ModuleNotFoundError: for a Parquet file, where pyarrow is not installed.
    """
    name = path.name.lower()
    if name.endswith(_TARS):
        yield from _in_archive(path, _read_tar(path, is_wanted), is_wanted)
    elif name.endswith(".zip"):
        yield from _in_archive(path, _read_zip(path, is_wanted), is_wanted)
    elif name.endswith(".parquet"):
        from savedmodel_bakery.client.bulk import parquet

        yield from _in_archive(path, parquet.read_photos(path, is_wanted), is_wanted)
    elif is_wanted(key := spell(path)):
        yield _file(key, path)


def spell(path: str | Path) -> str:
    """A path as text, also where it is no UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def unreadable(key: str, reason: str) -> Photo:
    """A photo that says why it can't be read."""

    def read() -> bytes:
        raise UnreadablePhoto(reason)

    return Photo(key, 0, read)


def _too_large(key: str, n_bytes: int) -> Photo:
    return unreadable(key, f"too large: {n_bytes} bytes; a photo has at most {MAX_PHOTO_BYTES}")


def _in_archive(path: Path, photos: Iterator[Photo], is_wanted: IsWanted) -> Iterator[Photo]:
    """Its photos, and in the end one that says that it is damaged, where it is."""
    try:
        yield from photos
    except _DAMAGED as exc:
        if is_wanted(key := spell(path)):
            yield unreadable(key, f"the archive cannot be read to its end: {_words(exc)}")


def _read_tar(path: Path, is_wanted: IsWanted) -> Iterator[Photo]:
    archive: Any
    with tarfile.open(path) as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # it would keep all of them
            key = _member_key(path, member.name)
            if member.isreg() and key and is_wanted(key):
                yield _member(key, member.size, partial(archive.extractfile, member))
        # Where a header is no header, the library takes it for the end.
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"there is no end mark at byte {archive.offset}")


def _read_zip(path: Path, is_wanted: IsWanted) -> Iterator[Photo]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            key = _member_key(path, member.filename)
            if member.is_dir() or not key or not is_wanted(key):
                continue
            try:
                yield _member(key, member.file_size, partial(archive.open, member))
            except _DAMAGED as exc:
                yield unreadable(key, f"cannot be unpacked: {_words(exc)}")


def _member(key: str, n_bytes: int, opened: Callable[[], Any]) -> Photo:
    """A member, read now, while its archive is there."""
    if n_bytes > MAX_PHOTO_BYTES:
        return _too_large(key, n_bytes)
    with opened() as file:
        content: bytes = file.read()
    return Photo(key, n_bytes, lambda: content)


def _member_key(path: Path, name: str) -> str | None:
    """The key of a member; None for one with a hidden name."""
    parts = [part for part in PurePosixPath(name).parts if part != "/"]
    if any(part.startswith(".") or part == "__MACOSX" for part in parts):
        return None
    return spell(str(path / Path(*parts)))


def _file(key: str, path: Path) -> Photo:
    try:
        found = path.stat()
    except OSError as exc:
        return unreadable(key, f"cannot be read: {_words(exc)}")
    if not S_ISREG(found.st_mode):
        return unreadable(key, "cannot be read: it is no file, or a folder that cannot be listed")
    if found.st_size > MAX_PHOTO_BYTES:
        return _too_large(key, found.st_size)
    return Photo(key, found.st_size, partial(_read, path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as exc:
        raise UnreadablePhoto(f"cannot be read: {_words(exc)}") from exc


def _words(exc: BaseException) -> str:
    return (exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)) or type(exc).__name__
