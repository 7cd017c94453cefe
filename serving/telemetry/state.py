"""What runs and waits, the memory in use, and the versions of the models.

A process publishes the metrics of the modules that it imports: a job on Ray has none of these.
"""

from __future__ import annotations

from typing import Any

from prometheus_client import Gauge

from savedmodel_bakery.serving.telemetry.images import IMAGES, RUN_STAGE_SECONDS
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY


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
VERSION_AVAILABLE = _gauge(
    "bakery_model_version_available",
    "1 if the version is available, 0 if it loads, unloads or could not be loaded.",
    *("model_name", "model_version"),
)


def watch_admission(entrypoint: str, admission: Any) -> None:
    """Publish the calls of a port, `GRPC` or `REST`, as its Admission counts them when the page is read."""
    RUNNING_CALLS.labels(entrypoint).set_function(lambda: admission.running)
    WAITING_CALLS.labels(entrypoint).set_function(lambda: admission.queued)
    MAX_RUNNING_CALLS.labels(entrypoint).set(admission.turns)
    MAX_WAITING_CALLS.labels(entrypoint).set(admission.places - admission.turns)


def watch_memory(memory: Any) -> None:
    """Publish the memory that requests use, as the MemoryBudget states it when the page is read."""
    MEMORY_BUDGET_BYTES.set_function(lambda: memory.size)
    MEMORY_USED_BYTES.set_function(lambda: memory.held)
    MEMORY_WAITING_CALLS.set_function(lambda: memory.queued)


def set_version(name: str, version: int, *, is_available: bool) -> None:
    """Publish whether a version is available."""
    VERSION_AVAILABLE.labels(name, str(version)).set(is_available)


def forget_version(name: str, version: int) -> None:
    """Remove the metrics of a version that was unloaded, so that a server that loads new ones for years stays small."""
    for metric in (VERSION_AVAILABLE, IMAGES, RUN_STAGE_SECONDS):
        metric.remove_by_labels({"model_name": name, "model_version": str(version)})
