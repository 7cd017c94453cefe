"""The folder of Parquet parts that a job writes: which photos have a row, as metrics too. Uses no Ray or TensorFlow.

Parquet's footer is written last, so an interrupted write leaves a part without one. Such a part is removed and its
photos are classified again. Nothing else is ever removed: parts are recognised by their names.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from savedmodel_bakery.answers.photo import path_key
from savedmodel_bakery.answers.photo_files import open_file
from savedmodel_bakery.answers.rows import find_task_name
from savedmodel_bakery.files import lock
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire.status import StatusError, invalid_argument

_PART = re.compile(r"rows-[0-9a-f]{32}-[0-9]{6}-[0-9]+\.parquet")


def part_name(write_uuid: str, task_index: int) -> str:
    """Return a part's file name, to which the writer appends `-NUMBER.parquet`; `write_uuid` is 32 hex digits."""
    return f"rows-{write_uuid}-{task_index:06}"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this job: two jobs would remove each other's unfinished parts, so the second is refused."""
    with (folder / ".lock").open("ab") as file:
        try:
            lock(file)
        except BlockingIOError:
            raise invalid_argument(f"{folder} is being written by another job") from None
        yield


@dataclass(frozen=True)
class Done:
    """The photos that have a row."""

    keys: frozenset[str]  # keys of the photos
    failed: int  # how many of them could not be read
    task: str | None  # name of the task of the rows; None without rows


def read_parts(folder: Path, *, model: str) -> Done:
    """Read which photos have a row in any part, and remove unfinished parts; refuses a folder with other files."""
    keys: set[str] = set()
    failed = 0
    task: str | None = None
    for path, task_of_part in _complete_parts(folder):
        check_task(folder, task, task_of_part)
        task = task_of_part
        try:
            table = pq.read_table(path, columns=["image", "ok", "model"])
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        others = [name for name in table["model"].unique().to_pylist() if name != model]
        if others:
            raise invalid_argument(f'{path} contains rows of model "{others[0]}", not "{model}"; use another folder')
        keys.update(table["image"].to_pylist())
        failed += table["ok"].to_pylist().count(False)
    return Done(frozenset(keys), failed, task)


def check_task(folder: Path, existing: str | None, task: str) -> None:
    """Check that rows of a task can be added to the existing ones."""
    if existing not in (None, task):
        raise invalid_argument(f"{folder} contains rows of task {existing}, not {task}; use another folder")


def _complete_parts(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.glob("*.parquet")):
        try:
            names = pq.read_schema(path).names
        except pa.ArrowInvalid:
            if _PART.fullmatch(path.name):
                path.unlink()
                continue
            names = []
        except (OSError, pa.ArrowException) as exc:
            raise _unreadable(path, exc) from exc
        try:
            task = find_task_name(names)
        except ValueError as exc:
            raise invalid_argument(f"{path} was not written by this command; use another folder") from exc
        yield path, task


def _unreadable(path: Path, exc: Exception) -> StatusError:
    return invalid_argument(f"cannot read {path}: {exc}; remove it to classify its photos again")


def publish_progress(folder: Path, pending: Iterable[Path], done: Collection[str], *, all_files: bool) -> None:
    """Publish the progress of a job as metrics, and count the photos of its pending files in the background."""
    progress = JobProgress(folder)
    REGISTRY.register(progress)

    def count() -> None:
        progress.expected = len(done) + sum(len(find_new(file, done, all_files=all_files)) for file in pending)

    threading.Thread(target=count, daemon=True).start()


def find_new(file: Path, done: Collection[str], *, all_files: bool) -> set[str]:
    """Return the keys of the photos in a file that have no row; reads archives, but no photo.

    An archive among the keys in `done` is damaged, and its other photos have a row too.
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


class JobProgress(Collector):
    """Counts the complete parts of a job and their rows when its metrics are read, each part once."""

    def __init__(self, folder: Path) -> None:
        self.expected: int | None = None  # photos that will have a row at the end; None until they are counted
        self._folder = folder
        self._parts: set[Path] = set()
        self._rows = {"ok": 0, "failed": 0}
        self._lock = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        photos = CounterMetricFamily("bakery_bulk_photos", "Photos that have a row.", labels=("outcome",))
        with self._lock:
            self._read_new_parts()
            parts = CounterMetricFamily("bakery_bulk_parts", "Complete Parquet parts.", len(self._parts))
            for outcome, count in self._rows.items():
                photos.add_metric((outcome,), count)
        expected = GaugeMetricFamily(
            "bakery_bulk_expected_photos", "Photos that will have a row when the job is finished.", self.expected
        )
        return photos, parts, expected

    def _read_new_parts(self) -> None:
        for path in set(self._folder.glob("*.parquet")) - self._parts:
            try:
                ok = pq.read_table(path, columns=["ok"])["ok"].to_pylist()
            except (OSError, pa.ArrowException):  # it is not complete yet
                continue
            self._parts.add(path)
            self._rows["ok"] += ok.count(True)
            self._rows["failed"] += ok.count(False)
