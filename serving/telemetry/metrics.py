"""TensorFlow Serving's counters and latency histograms, counters of our own, and the page that exports all metrics.

TensorFlow Serving's have the names, labels and lines of the real server, so `prometheus_client` can't write them.
TensorFlow's own metrics, which the real server also exports, can't be read from Python. Names and units of ours follow
Prometheus (prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from savedmodel_bakery.wire.status import Code, StatusError

CONTENT_TYPE = "text/plain"


class _Registry(CollectorRegistry):
    def collect(self) -> Iterable[Metric]:
        """Yield all metrics, without the time at which each series was created, which would double their number."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


REGISTRY = _Registry()
"""Our own metrics. Each has a fixed set of labels, whose values are never texts of a request; a model's name is one
that the server knows."""

ProcessCollector(registry=REGISTRY)

_SERVING_REGISTRY = CollectorRegistry()
_LATENCY_BOUNDS_MICROS = tuple(10 * 1.8**power for power in range(33))
_QUEUING_BOUNDS_MICROS = tuple(100 * 1.2**power for power in range(52))
_EXAMPLE_BOUNDS = tuple(float(2**power) for power in range(15))
_BATCH_BOUNDS = _EXAMPLE_BOUNDS[:-1]


def _name(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", ":", path)


def _counter(path: str, *labels: str) -> Counter:
    return Counter(_name(path), path, labels, registry=_SERVING_REGISTRY)


def _histogram(path: str, bounds: Iterable[float], *labels: str) -> Histogram:
    return Histogram(_name(path), path, labels, buckets=tuple(bounds), registry=_SERVING_REGISTRY)


_SERVING = "/tensorflow/serving/"
REQUEST_COUNT = _counter(_SERVING + "request_count", "model_name", "status")
REQUEST_LATENCY = _histogram(_SERVING + "request_latency", _LATENCY_BOUNDS_MICROS, "model_name", "API", "entrypoint")
RUNTIME_LATENCY = _histogram(_SERVING + "runtime_latency", _LATENCY_BOUNDS_MICROS, "model_name", "API", "runtime")
EXAMPLE_COUNTS = _histogram(_SERVING + "request_example_counts", _EXAMPLE_BOUNDS, "model")
EXAMPLE_COUNT_TOTAL = _counter(_SERVING + "request_example_count_total", "model")
WARMUP_LATENCY = _histogram(_SERVING + "model_warmup_latency", _LATENCY_BOUNDS_MICROS, "model_path", "status")
WARMUP_RECORDS_READ = _counter(_SERVING + "model_warmup_records_read", "model_path", "status")

_BATCHING = _SERVING + "batching_session/"
QUEUING_LATENCY = _histogram(_BATCHING + "queuing_latency", _QUEUING_BOUNDS_MICROS, "thread_pool_name")
WRAPPED_RUN_COUNT = _counter(_BATCHING + "wrapped_run_count")
PADDING_SIZE = _histogram(_BATCHING + "padding_size", _BATCH_BOUNDS, "execution_batch_size")
INPUT_BATCH_SIZE = _histogram(_BATCHING + "input_batch_size", _BATCH_BOUNDS)
PROCESSED_BATCH_SIZE = _histogram(_BATCHING + "processed_batch_size", _BATCH_BOUNDS)

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


@lru_cache(maxsize=4096)
def _with_labels(metric: Counter | Histogram, *labels: str) -> Any:
    """Return the child of a metric for these labels; cached, as the look-up takes longer than the counting."""
    return metric.labels(*labels)


def count_request(model_name: str, api: str, entrypoint: str, code: Code, seconds: float) -> None:
    """Count a finished call; its latency is recorded only if it succeeded.

    The model's name is empty if the call named none, or an unknown one: every name stays in memory. `api` is `Predict`,
    `Classify`, `Regress`, or the verb of a URL; `entrypoint` is `GRPC` or `REST`.
    """
    _with_labels(REQUEST_COUNT, model_name, code.name).inc()
    if code is Code.OK:
        _with_labels(REQUEST_LATENCY, model_name, api, entrypoint).observe(seconds * 1e6)


def time_run(model_name: str, api: str, seconds: float) -> None:
    """Record how long a model ran for a call to `api`."""
    _with_labels(RUNTIME_LATENCY, model_name, api, "TF1").observe(seconds * 1e6)


def count_rejection(entrypoint: str, error: StatusError) -> None:
    """Count a call that failed, if a limit was the reason; `entrypoint` is `GRPC` or `REST`."""
    if error.limit is not None:
        REJECTED_CALLS.labels(entrypoint, error.limit).inc()


def counters() -> dict[str, int]:
    """Return the value of every counter of TensorFlow Serving, summed over its labels, by its name with slashes."""
    return {
        metric.documentation: round(sum(sample.value for sample in _samples(metric)))
        for metric in _SERVING_REGISTRY.collect()
        if metric.type == "counter"
    }


def page() -> bytes:
    """Return TensorFlow Serving's metrics as the real server writes them, then our own."""
    lines = []
    for metric in _SERVING_REGISTRY.collect():
        name = _name(metric.documentation)
        lines.append(f"# TYPE {name} {metric.type}")
        for sample in _samples(metric):
            suffix = sample.name.removeprefix(metric.name) if metric.type == "histogram" else ""
            lines.append(f"{name}{suffix}{{{_labels(sample)}}} {_number(sample.value)}")
    return "\n".join([*lines, ""]).encode(errors="replace") + generate_latest(REGISTRY)


def _samples(metric: Metric) -> Iterator[Sample]:
    """Yield the samples of a metric, a histogram's sum before its count."""
    count = None
    for sample in metric.samples:
        if sample.name.endswith("_count"):
            count = sample
        elif not sample.name.endswith("_created"):
            yield sample
        if count is not None and sample.name.endswith("_sum"):
            yield count


def _labels(sample: Sample) -> str:
    return ",".join(f'{key}="{_label_value(key, value)}"' for key, value in sample.labels.items())


def _label_value(key: str, value: str) -> str:
    if key == "le":
        return value if value == "+Inf" else _number(float(value))
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    """Format integers in full, and other numbers with six digits."""
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:g}"
