"""Gauges are read when the page is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from waiting import wait_until

from savedmodel_bakery.serving.admission.admission import Admission
from savedmodel_bakery.serving.admission.budget import MemoryBudget
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.limits import Limits
from savedmodel_bakery.serving.models.registry import Registry, State
from savedmodel_bakery.serving.telemetry import state
from savedmodel_bakery.serving.telemetry.images import IMAGES
from savedmodel_bakery.serving.telemetry.metrics import REGISTRY
from savedmodel_bakery.wire.status import Code, StatusError


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"bakery_{name}", labels)


def calls(entrypoint: str) -> tuple[float | None, ...]:
    names = ("running_calls", "max_running_calls", "waiting_calls", "max_waiting_calls")
    return tuple(value(name, entrypoint=entrypoint) for name in names)


def test_calls_that_run_and_wait() -> None:
    admission = Admission(Limits(waiting_calls=7), MemoryBudget(2**20), turns=1)
    state.watch_admission("TEST", admission)
    assert (0, 1, 0, 7) == calls("TEST")
    with ThreadPoolExecutor(1) as threads, admission.turn(RequestContext()):
        waiting = threads.submit(lambda: admission.turn(RequestContext()).__enter__())
        wait_until(lambda: calls("TEST") == (1, 1, 1, 7))
    waiting.result(10)


def test_memory() -> None:
    memory = MemoryBudget(2**30)
    state.watch_memory(memory)
    context = RequestContext(memory=memory)
    context.charge(2**20)
    names = ("memory_budget_bytes", "memory_used_bytes", "memory_waiting_calls")
    assert [2**30, 2**20, 0] == [value(name) for name in names]
    context.close()
    assert 0 == value("memory_used_bytes")


def test_versions_that_are_unloaded_disappear() -> None:
    registry = Registry()
    first, second = (registry.add("pets", number, Path(str(number))) for number in (1, 2))
    assert [0, 0] == [available("pets", number) for number in (1, 2)]
    registry.update(first, State.AVAILABLE)
    registry.update(second, State.END, error=StatusError(Code.UNKNOWN, "damaged"))
    assert [1, 0] == [available("pets", number) for number in (1, 2)]
    state.forget_version("pets", 1)
    registry.update(first, State.END)
    assert [None, 0] == [available("pets", number) for number in (1, 2)]


def available(name: str, version: int) -> float | None:
    return value("model_version_available", model_name=name, model_version=str(version))


def test_images_of_a_version_that_was_unloaded_disappear() -> None:
    for version in ("1", "2"):
        IMAGES.labels("birds", version, "ok", "").inc()
    state.forget_version("birds", 1)
    labels = {"model_name": "birds", "outcome": "ok", "reason": ""}
    assert [None, 1] == [value("images_total", model_version=version, **labels) for version in ("1", "2")]
