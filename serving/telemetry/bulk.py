"""The metrics of a bulk job on Ray, which are read when their page is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from savedmodel_bakery.serving.telemetry.registry import REGISTRY


class JobProgress(NamedTuple):
    """How far a job is.

    Attributes:
        parts: complete parts in its folder.
        classified: photos whose row has a result.
        failed: photos whose row has the reason why there is none.
        expected: photos that will have a row when the job is finished; None until they have been counted.
    """

    parts: int
    classified: int
    failed: int
    expected: int | None


class _Job(Collector):
    """The progress of the job of this process, if there is one."""

    def __init__(self) -> None:
        self.read: Callable[[], JobProgress | None] = lambda: None

    def collect(self) -> Iterable[Metric]:
        photos = CounterMetricFamily("bakery_bulk_photos", "Photos that have a row.", labels=("outcome",))
        parts = CounterMetricFamily("bakery_bulk_parts", "Complete Parquet parts.")
        expected = GaugeMetricFamily(
            "bakery_bulk_expected_photos", "Photos that will have a row when the job is finished."
        )
        progress = self.read()
        if progress:
            photos.add_metric(("ok",), progress.classified)
            photos.add_metric(("failed",), progress.failed)
            parts.add_metric((), progress.parts)
            if progress.expected is not None:
                expected.add_metric((), progress.expected)
        return photos, parts, expected


_JOB = _Job()
REGISTRY.register(_JOB)


def watch_job(read: Callable[[], JobProgress | None]) -> None:
    """Publish the progress of a job, which `read` returns."""
    _JOB.read = read
