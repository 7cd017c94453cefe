"""Which files a command line names: paths, folders, globs, and a list on stdin. Must not look into files."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path


@dataclass(frozen=True)
class FileList:
    """Files to read; may be walked more than once, and holds no list of what it finds.

    Attributes:
        paths: files, folders, which are walked, and globs (`**` is any number of folders), which match files.
        listed: more files and folders, one a line; held, as a pipe is read once.
        left_out: files and folders whose files are not among them, with symbolic links followed.
    """

    paths: tuple[str, ...]
    listed: bytes = b""
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of_arguments(cls, arguments: Sequence[str]) -> FileList:
        """Read a command line's; `-` stands for the list on stdin."""
        paths = tuple(path for path in arguments if path != "-")
        return cls(paths, sys.stdin.buffer.read() if "-" in arguments else b"")

    def without(self, paths: Iterable[Path]) -> FileList:
        """All but these files, and those in these folders: what a job writes is not its input."""
        return replace(self, left_out=self.left_out | {os.path.realpath(path) for path in paths})

    def check(self) -> None:
        """Refuse a path where there is nothing.

        Raises:
            ValueError: it is neither file, folder nor a glob that matches a file.
        """
        for path in self.paths:
            if not os.path.lexists(path) and next(_match(path), None) is None:
                raise ValueError(f"{path} is neither a file, a folder nor a glob that matches a file")

    def __iter__(self) -> Iterator[Path]:
        return (path for path in self._all() if not self._is_left_out(path))

    def _is_left_out(self, path: Path) -> bool:
        """Whether it is; links are followed once a folder."""
        folder = _real_path(path.parent.absolute())
        if os.path.join(folder, path.name) in self.left_out:  # noqa: PTH118 - a Path for each would be thrown away
            return True
        return any(Path(folder).is_relative_to(left_out) for left_out in self.left_out)

    def _all(self) -> Iterator[Path]:
        for path in self.paths:
            yield from _expand(path) if os.path.lexists(path) else _match(path)
        for line in BytesIO(self.listed):
            if name := line.rstrip(b"\r\n"):
                yield from _expand(os.fsdecode(name))


_real_path = lru_cache(maxsize=64)(os.path.realpath)


def _expand(path: str) -> Iterator[Path]:
    """The file itself, or the files in a folder, those with hidden names excepted; or a folder that can't be listed."""
    if not os.path.isdir(path):  # noqa: PTH112 - a Path for each would be thrown away
        yield Path(path)
        return
    waiting = [path]
    while waiting:
        folder = waiting.pop()
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
                    waiting.append(entry.path)
                elif entry.is_file():
                    yield Path(entry.path)


def _match(pattern: str) -> Iterator[Path]:
    return (Path(path) for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path))  # noqa: PTH113, PTH207 - as above, and absolute ones
