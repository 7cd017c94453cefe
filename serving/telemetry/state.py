"""Metrics that are read when the page is: what runs and waits, the memory in use, and the versions of the models."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from prometheus_client import Gauge
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from savedmodel_bakery.serving.telemetry.images import IMAGES, RUN_STAGE_SECONDS
from savedmodel_bakery.serving.telemetry.registry import REGISTRY


def _gauge(name: str, meaning: str, *labels: str) -> Gauge:
    return Gauge(name, meaning, labels, registry=REGISTRY)


RUNNING_CALLS = _gauge("bakery_running_calls", "Calls whose models run now.", "entrypoint")
WAITING_CALLS = _gauge("bakery_waiting_calls", "Calls that wait for others to end.", "entrypoint")
MAX_RUNNING_CALLS = _gauge("bakery_max_running_calls", "Calls whose models may run at the same time.", "entrypoint")
MAX_WAITING_CALLS = _gauge("bakery_max_waiting_calls", "Calls that may wait (--max_waiting_calls).", "entrypoint")
MEMORY_BUDGET_BYTES = _gauge(
    "bakery_memory_budget_bytes", "Memory that all requests may use together (--memory_budget_bytes)."
)
MEMORY_USED_BYTES = _gauge("bakery_memory_used_bytes", "Part of the memory budget that requests use now.")
MEMORY_WAITING_CALLS = _gauge("bakery_memory_waiting_calls", "Calls that wait for memory.")


class _Admission(Protocol):
    @property
    def running(self) -> int: ...
    @property
    def queued(self) -> int: ...
    @property
    def turns(self) -> int: ...
    @property
    def places(self) -> int: ...


class _Memory(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def queued(self) -> int: ...


class VersionState(NamedTuple):
    """A version of a model that should be served, and whether it is."""

    model_name: str
    version: int
    is_available: bool


def watch_admission(entrypoint: str, admission: _Admission) -> None:
    """Publish the calls of a port, `GRPC` or `REST`."""
    RUNNING_CALLS.labels(entrypoint).set_function(lambda: admission.running)
    WAITING_CALLS.labels(entrypoint).set_function(lambda: admission.queued)
    MAX_RUNNING_CALLS.labels(entrypoint).set(admission.turns)
    MAX_WAITING_CALLS.labels(entrypoint).set(admission.places - admission.turns)


def watch_memory(memory: _Memory) -> None:
    """Publish the memory that requests use."""
    MEMORY_BUDGET_BYTES.set_function(lambda: memory.size)
    MEMORY_USED_BYTES.set_function(lambda: memory.held)
    MEMORY_WAITING_CALLS.set_function(lambda: memory.queued)


class _Versions(Collector):
    """The versions of all models; those that are unloaded disappear."""

    def __init__(self) -> None:
        self.read: Callable[[], Iterable[VersionState]] = tuple

    def collect(self) -> Iterable[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "bakery_model_version_available",
            "1 if the version is available, 0 if it loads, unloads or could not be loaded.",
            labels=("model_name", "model_version"),
        )
        for name, version, is_available in self.read():
            family.add_metric((name, str(version)), is_available)
        yield family


_VERSIONS = _Versions()
REGISTRY.register(_VERSIONS)


def watch_versions(read: Callable[[], Iterable[VersionState]]) -> None:
    """Publish the states of versions, which `read` returns."""
    _VERSIONS.read = read


def forget_version(name: str, version: int) -> None:
    """Remove the metrics of a version that was unloaded, so that a server that loads new ones for years stays small."""
    for metric in (IMAGES, RUN_STAGE_SECONDS):
        metric.remove_by_labels({"model_name": name, "model_version": str(version)})
