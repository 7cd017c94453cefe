"""The registry of our own metrics, and counters of calls.

Names and units follow Prometheus (prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, ProcessCollector
from prometheus_client.metrics_core import Metric

from savedmodel_bakery.wire.status import StatusError


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


TOKEN_CALLS = Counter(
    "bakery_token_calls",
    "Calls with a valid token, by its name in the tokens file.",
    ("token_name",),
    registry=REGISTRY,
)
REJECTED_CALLS = Counter(
    "bakery_rejected_calls",
    "Calls that were rejected because of a limit: a flag, a key of the tokens file, or the caller's deadline.",
    ("entrypoint", "limit"),
    registry=REGISTRY,
)
HALVED_BATCHES = Counter("bakery_halved_batches", "Batches that failed and ran again in halves.", registry=REGISTRY)


def count_rejection(entrypoint: str, error: StatusError) -> None:
    """Count a call that failed, if a limit was the reason; `entrypoint` is `GRPC` or `REST`."""
    if error.limit is not None:
        REJECTED_CALLS.labels(entrypoint, error.limit).inc()
