"""Opens the files of a bulk job: a photo, an archive of photos, or a Parquet file with photos or with their paths."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from savedmodel_bakery.answers.photos.photo import (
    MAX_PHOTO_BYTES,
    IsWanted,
    Photo,
    file_photo,
    is_image_name,
    oversized_photo,
    path_key,
    reason_of,
    unreadable_photo,
)
from savedmodel_bakery.extras import naming_extras

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


def open_file(path: Path, is_wanted: IsWanted, *, all_files: bool) -> Iterator[Photo]:
    """Yield the photos in a file: a tar (also compressed) or zip archive or a Parquet file, by its suffix; or a photo.

    An archive is read once, from beginning to end; `all_files` also takes members whose names have no image suffix. A
    file that cannot be read yields an unreadable photo; a damaged archive yields one with the archive's key.
    """
    name = path.name.lower()

    def is_member_wanted(key: str) -> bool:
        return (all_files or is_image_name(key)) and is_wanted(key)

    if name.endswith(TAR_SUFFIXES):
        photos = read_tar(path, is_member_wanted)
    elif name.endswith(".zip"):
        photos = read_zip(path, is_member_wanted)
    elif name.endswith(".parquet"):
        photos = _read_parquet(path, is_wanted, all_files=all_files)
    else:
        if is_wanted(key := path_key(path)):
            yield file_photo(key, path)
        return
    try:
        yield from photos
    except DAMAGE_ERRORS as exc:
        if is_wanted(key := path_key(path)):
            yield unreadable_photo(key, f"the archive cannot be read to its end: {reason_of(exc)}")


def check_parquet_files(files: Iterable[Path]) -> None:
    """Raise ValueError if a Parquet file among these has neither photos nor paths of photos."""
    for path in files:
        if path.name.lower().endswith(".parquet"):
            parquet = _import_parquet()
            try:
                parquet.check_columns(path)
            except parquet.ColumnsError as exc:
                raise ValueError(f"{path} contains no photos: {exc}") from exc


def has_photos(name: str) -> bool:
    """Return whether a file of this name in a folder is a photo, an archive or a Parquet file."""
    return is_image_name(name) or name.lower().endswith((*TAR_SUFFIXES, ".zip", ".parquet"))


def _read_parquet(path: Path, is_wanted: IsWanted, *, all_files: bool) -> Iterator[Photo]:
    for photo in _import_parquet().read_photos(path, is_wanted):
        if isinstance(photo, Path):
            yield from open_file(photo, is_wanted, all_files=all_files)
        else:
            yield photo


def _import_parquet() -> ModuleType:
    with naming_extras("Parquet", "parquet"):
        from savedmodel_bakery.answers.photos import parquet
    return parquet
