"""Expands command-line arguments (paths, folders, globs, a list on stdin) to file names. Never opens the files."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from savedmodel_bakery.answers.photos.sources import has_photos


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
