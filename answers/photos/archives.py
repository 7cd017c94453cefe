"""Reads the photos in tar and zip archives, each archive from beginning to end."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import Any

from savedmodel_bakery.answers.photos.photo import (
    MAX_PHOTO_BYTES,
    IsWanted,
    Photo,
    oversized_photo,
    path_key,
    reason_of,
    unreadable_photo,
)

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")

DAMAGE_ERRORS = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, LZMAError),
    *(EOFError, IndexError, OSError, RuntimeError, ValueError),
)
"""The exceptions of the libraries for damaged, encrypted and unsupported archives, as found by fuzzing."""


def read_tar(path: Path, is_wanted: IsWanted) -> Iterator[Photo]:
    """Read the photos in a tar archive, which may be compressed. Raises one of `DAMAGE_ERRORS`."""
    archive: Any
    with tarfile.open(path) as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # tarfile would keep all of them in memory
            key = _member_key(path, member.name)
            if member.isreg() and key and is_wanted(key):
                yield _member_photo(key, member.size, partial(archive.extractfile, member))
        # tarfile takes an invalid header for the end of the archive.
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
            raise tarfile.ReadError(f"no end mark at byte {archive.offset}")


def read_zip(path: Path, is_wanted: IsWanted) -> Iterator[Photo]:
    """Read the photos in a zip archive.

    Raises one of `DAMAGE_ERRORS`; a member that cannot be unpacked is an unreadable photo instead.
    """
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            key = _member_key(path, member.filename)
            if member.is_dir() or not key or not is_wanted(key):
                continue
            try:
                yield _member_photo(key, member.file_size, partial(archive.open, member))
            except DAMAGE_ERRORS as exc:
                yield unreadable_photo(key, f"cannot be unpacked: {reason_of(exc)}")


def _member_photo(key: str, n_bytes: int, open_member: Callable[[], Any]) -> Photo:
    """Read a member now, while the archive is open."""
    if n_bytes > MAX_PHOTO_BYTES:
        return oversized_photo(key, n_bytes)
    with open_member() as file:
        content: bytes = file.read()
    return Photo(key, n_bytes, lambda: content)


def _member_key(path: Path, name: str) -> str | None:
    """Return the key of a member; None for hidden files."""
    parts = [part for part in PurePosixPath(name).parts if part != "/"]
    if any(part.startswith(".") or part == "__MACOSX" for part in parts):
        return None
    return path_key(str(path / Path(*parts)))
