"""The files of a bulk job: those that command-line arguments name, and the photos in each.

Arguments are paths, folders, globs and a list on stdin. A file is a photo, an archive of photos, or a Parquet file with
photos or with their paths, or a CSV file with paths. The other columns of a Parquet or CSV file are inputs of a model.
"""

from __future__ import annotations

import csv
import glob
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from io import BytesIO
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from savedmodel_bakery.answers.photo import (
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
    *(EOFError, IndexError, OSError, RuntimeError, ValueError, csv.Error),
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
    """Yield the photos in a file: a tar (also compressed) or zip archive, a Parquet or CSV file, by its suffix; or one.

    An archive is read once, from beginning to end; `all_files` also takes members whose names have no image suffix. A
    file that cannot be read yields an unreadable photo; a damaged archive yields one with the archive's key. A photo in
    a list has the values of its other columns.
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
    elif name.endswith(".csv"):
        photos = _read_csv(path, is_wanted, all_files=all_files)
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
    for photo, columns in _import_parquet().read_photos(path, is_wanted):
        listed = open_file(photo, is_wanted, all_files=all_files) if isinstance(photo, Path) else [photo]
        yield from (replace(each, columns=columns) for each in listed)


def _read_csv(path: Path, is_wanted: IsWanted, *, all_files: bool) -> Iterator[Photo]:
    """Read the photos whose paths are in the column `image`; raises ValueError if there is none."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file, strict=True):
            if None in row or None in row.values() or not row.get("image"):
                raise ValueError(
                    f"it must have a header with image, and as many cells in each row: {list(row.values())}"
                )
            listed = open_file(Path(row.pop("image")), is_wanted, all_files=all_files)
            yield from (replace(photo, columns=row) for photo in listed)


def _import_parquet() -> ModuleType:
    with naming_extras("Parquet", "parquet"):
        from savedmodel_bakery.answers import parquet
    return parquet


@dataclass(frozen=True)
class FileList:
    """The files of a job. Can be iterated more than once, and does not keep the file names in memory."""

    paths: tuple[str, ...]  # files; folders, which are walked; globs (`**` is any number of folders), which match files
    listed: bytes = b""  # more files and folders, one per line, as read from stdin
    excluded: frozenset[str] = frozenset()  # real paths of files and folders to leave out
    all_files: bool = False  # in folders, take files of any name

    @classmethod
    def from_arguments(cls, arguments: Sequence[str], *, all_files: bool) -> FileList:
        """Return the files that command-line arguments name; `-` reads the list on stdin."""
        paths = tuple(path for path in arguments if path != "-")
        return cls(paths, sys.stdin.buffer.read() if "-" in arguments else b"", all_files=all_files)

    def without(self, paths: Iterable[Path]) -> FileList:
        """Return the same files except these, and those in these folders, such as the job's own output."""
        return replace(self, excluded=self.excluded | {os.path.realpath(path) for path in paths})

    def check(self) -> None:
        """Raise ValueError if a path is neither a file, a folder nor a glob that matches a file."""
        for path in self.paths:
            if not os.path.lexists(path) and next(_match(path), None) is None:
                raise ValueError(f"not found: {path} is neither a file, a folder nor a glob that matches a file")

    def named(self) -> Iterator[Path]:
        """Yield the files that arguments name or match themselves, without those in folders."""
        for path in self.paths:
            if not os.path.lexists(path):
                yield from _match(path)
            elif not os.path.isdir(path):  # noqa: PTH112 - see `FileList._expand`
                yield Path(path)

    def __iter__(self) -> Iterator[Path]:
        return (path for path in self._all() if not self._is_excluded(path))

    def _is_excluded(self, path: Path) -> bool:
        """Return whether to leave a file out. Symbolic links are resolved once per folder."""
        folder = _real_path(path.parent.absolute())
        if os.path.join(folder, path.name) in self.excluded:  # noqa: PTH118 - no Path per file
            return True
        return any(Path(folder).is_relative_to(excluded) for excluded in self.excluded)

    def _all(self) -> Iterator[Path]:
        for path in self.paths:
            yield from self._expand(path) if os.path.lexists(path) else _match(path)
        for line in BytesIO(self.listed):
            if name := line.rstrip(b"\r\n"):
                yield from self._expand(os.fsdecode(name))

    def _expand(self, path: str) -> Iterator[Path]:
        """Yield the file itself, or the files in a folder except hidden ones; also folders that cannot be listed."""
        if not os.path.isdir(path):  # noqa: PTH112 - no Path per file
            yield Path(path)
            return
        pending = [path]
        while pending:
            folder = pending.pop()
            try:
                entries = os.scandir(folder)
            except OSError:
                yield Path(folder)
                continue
            with entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif (self.all_files or has_photos(entry.name)) and entry.is_file():
                        yield Path(entry.path)


_real_path = lru_cache(maxsize=64)(os.path.realpath)


def _match(pattern: str) -> Iterator[Path]:
    return (Path(path) for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path))  # noqa: PTH113, PTH207 - no Path per file, and absolute patterns
