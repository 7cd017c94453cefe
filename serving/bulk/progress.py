"""How far a job is: its complete parts and their rows, and its photos. Imports neither Ray nor TensorFlow."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from savedmodel_bakery.answers.photos.photo import path_key
from savedmodel_bakery.answers.photos.sources import open_file
from savedmodel_bakery.serving.telemetry.registry import REGISTRY


def publish(folder: Path, pending: Iterable[Path], done: Collection[str], *, all_files: bool) -> None:
    """Publish the progress of a job as metrics, and count its photos in the background.

    Args:
        folder: where the job writes its parts.
        pending: see `find_new`; the files that the job reads.
        done: keys of the photos that have a row.
        all_files: see `open_file`.
    """
    progress = JobProgress(folder)
    REGISTRY.register(progress)

    def count() -> None:
        progress.expected = len(done) + sum(len(find_new(file, done, all_files=all_files)) for file in pending)

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


class JobProgress(Collector):
    """Counts the complete parts of a job and their rows when its metrics are read, each part once.

    Args:
        folder: of the parts.

    Attributes:
        expected: photos that will have a row when the job is finished; None until they have been counted.
    """

    def __init__(self, folder: Path) -> None:
        self.expected: int | None = None
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
