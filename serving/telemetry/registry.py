"""The registry of our own metrics. Names and units follow Prometheus (prometheus.io/docs/practices/naming)."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric


class _Registry(CollectorRegistry):
    def collect(self) -> Iterable[Metric]:
        """Yield all metrics, without the time at which each series was created, which would double their number."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


REGISTRY = _Registry()
"""Each metric has a fixed set of labels. Their values are never texts of a request; a model's name is one that the
server knows."""

ProcessCollector(registry=REGISTRY)
