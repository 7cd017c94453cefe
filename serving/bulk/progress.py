"""How far a job is: its complete parts and their rows, and its photos. Imports neither Ray nor TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from savedmodel_bakery.answers.photos.photo import path_key
from savedmodel_bakery.answers.photos.sources import open_file
from savedmodel_bakery.serving.telemetry.bulk import JobProgress, watch_job


def publish(folder: Path, pending: Iterable[Path], done: Collection[str], *, all_files: bool) -> None:
    """Publish the progress of a job as metrics, and count its photos in the background.

    Args:
        folder: where the job writes its parts.
        pending: see `find_new`; the files that the job reads.
        done: keys of the photos that have a row.
        all_files: see `open_file`.
    """
    parts = PartCounts(folder)
    expected: list[int] = []

    def count() -> None:
        expected.append(len(done) + sum(len(find_new(file, done, all_files=all_files)) for file in pending))

    watch_job(lambda: JobProgress(*parts.read(), expected[0] if expected else None))
    threading.Thread(target=count, daemon=True).start()


def find_new(file: Path, done: Collection[str], *, all_files: bool) -> set[str]:
    """Return the keys of the photos in a file that have no row; reads archives, but no photo.

    Args:
        file: a photo or an archive.
        done: keys of the photos that have a row. An archive among them is damaged, and its other photos have one too.
        all_files: see `open_file`.
    """
    new: set[str] = set()

    def note(key: str) -> bool:
        if key not in done:
            new.add(key)
        return False

    if path_key(file) not in done:
        for _ in open_file(file, note, all_files=all_files):
            pass  # `note` selects no photo
    return new


class PartCounts:
    """Counts the complete parts in a folder and their rows, while others are written. Reads each part once.

    Args:
        folder: of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: set[Path] = set()
        self._classified = self._failed = 0
        self._lock = threading.Lock()

    def read(self) -> tuple[int, int, int]:
        """Return the number of parts, of rows with a result, and of rows of photos that failed."""
        with self._lock:
            for path in set(self._folder.glob("*.parquet")) - self._parts:
                try:
                    ok = pq.read_table(path, columns=["ok"])["ok"].to_pylist()
                except (OSError, pa.ArrowException):  # it is not complete yet
                    continue
                self._parts.add(path)
                self._classified += ok.count(True)
                self._failed += ok.count(False)
            return len(self._parts), self._classified, self._failed
