"""A model whose base path is missing delays no other model, no later configuration, and no call beyond its deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models import lifecycle as lifecycle_module
from savedmodel_bakery.serving.models.lifecycle import Lifecycle
from savedmodel_bakery.serving.models.registry import Registry
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError


def load(name: str, version: int, path: Path) -> Servable:
    """Load any version except those of the model `broken`."""
    if name == "broken":
        raise StatusError(Code.NOT_FOUND, f"{path} is broken")
    runtime: Any = SimpleNamespace(close=lambda: None)
    return Servable(name, version, runtime)


class Models:
    """A running lifecycle, whose models are folders of `root`; of those that don't start with `missing`, version 1."""

    def __init__(self, root: Path, *, start: bool = True) -> None:
        self.root = root
        self.registry = Registry()
        options = LifecycleOptions(poll_wait_s=0.01, max_load_retries=0)
        self.lifecycle = Lifecycle(self.registry, load, options)
        if start:
            self.lifecycle.start({})

    def add(self, name: str, version: int = 1) -> None:
        (self.root / name / str(version)).mkdir(parents=True)

    def config(self, *names: str) -> dict[str, ModelConfig]:
        for name in names:
            if not name.startswith("missing") and not (self.root / name).exists():
                self.add(name)
        return {name: ModelConfig(name, str(self.root / name)) for name in names}

    def reload(self, *names: str, timeout_s: float | None = 30) -> None:
        self.lifecycle.reload(self.config(*names), RequestContext(timeout_s=timeout_s))

    def wait_for(self, name: str, *versions: int) -> None:
        wait_until(lambda: self.registry.available(name) == set(versions), interval_s=0.005)


@pytest.fixture
def models(tmp_path: Path) -> Iterator[Models]:
    created = Models(tmp_path)
    yield created
    created.lifecycle.stop()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as created:
        yield created


def error(call: Future[None]) -> StatusError:
    raised = call.exception(30)
    assert isinstance(raised, StatusError)
    return raised


def test_a_call_ends_at_its_deadline_and_the_configuration_is_in_effect(models: Models) -> None:
    with pytest.raises(StatusError) as caught:
        models.reload("a", "missing", timeout_s=0.3)
    assert Code.DEADLINE_EXCEEDED is caught.value.code
    path = models.root / "missing"
    assert caught.value.message == (
        "the configuration is in effect, but 1 model(s) did not become available before the call ended: missing: "
        "FileSystemStoragePathSource encountered a filesystem access error: Could not find base path "
        f"{path} for servable missing with error No such file or directory"
    )
    models.wait_for("a", 1)
    models.add("missing")
    models.wait_for("missing", 1)


def test_a_cancelled_call_ends(models: Models, pool: ThreadPoolExecutor) -> None:
    context = RequestContext()
    waiting = pool.submit(models.lifecycle.reload, models.config("missing"), context)
    wait_until(lambda: "missing" in models.lifecycle._models)
    context.cancel()
    assert Code.CANCELLED is error(waiting).code


def test_a_repeated_call_waits_for_the_same_model(models: Models) -> None:
    for _ in range(2):
        with pytest.raises(StatusError, match="missing"):
            models.reload("a", "missing", timeout_s=0.1)
    models.add("missing")
    models.reload("a", "missing")


def test_new_versions_of_other_models_are_loaded(models: Models) -> None:
    models.reload("a")
    models.lifecycle.apply(models.config("missing", "a"))
    models.add("a", 2)
    models.wait_for("a", 2)


def test_a_newer_configuration_replaces_a_waiting_one(models: Models, pool: ThreadPoolExecutor) -> None:
    models.add("a")
    waiting = [pool.submit(models.reload, "a", f"missing{number}") for number in range(9)]
    wait_until(lambda: sum(call.done() for call in waiting) == 8)
    models.reload("a", "b")
    assert {(Code.ABORTED, "replaced by a newer configuration")} == {
        (error(call).code, error(call).message) for call in waiting
    }
    assert ({1}, {1}) == (models.registry.available("a"), models.registry.available("b"))


def test_an_invalid_configuration_replaces_none(models: Models, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(models.reload, "missing")
    wait_until(lambda: "missing" in models.lifecycle._models)
    with pytest.raises(StatusError, match="unsupported platform"):
        models.lifecycle.reload({"a": ModelConfig("a", "/a", platform="another")}, RequestContext())
    models.add("missing")
    assert waiting.result(30) is None


def test_polling_waits_for_nothing_and_replaces_only_another_configuration(
    models: Models, pool: ThreadPoolExecutor
) -> None:
    waiting = pool.submit(models.reload, "a", "missing")
    models.wait_for("a", 1)
    models.lifecycle.apply(models.config("a", "missing"))
    assert not waiting.done()
    models.lifecycle.apply(models.config("b", "missing"))
    assert Code.ABORTED is error(waiting).code
    models.wait_for("b", 1)


def test_a_model_that_was_available_is_not_waited_for(models: Models) -> None:
    models.reload("a")
    (models.root / "a" / "1").rmdir()
    models.wait_for("a")
    models.reload("a", "b")


def test_a_version_that_disappears_while_it_loads_was_available(models: Models) -> None:
    def load_and_lose(name: str, version: int, path: Path) -> Servable:
        if name == "a":
            path.rmdir()
            wait_until(lambda: not models.lifecycle._wanted[name])
        return load(name, version, path)

    models.lifecycle._threads._load_servable = load_and_lose
    models.reload("a")
    models.wait_for("a")
    models.reload("a", "b")


def test_stopping_ends_a_waiting_call(models: Models, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(models.reload, "missing")
    wait_until(lambda: "missing" in models.lifecycle._models)
    models.lifecycle.stop()
    assert (Code.UNAVAILABLE, "the server is stopping") == (error(waiting).code, error(waiting).message)


def test_a_start_waits_for_the_configuration_that_replaces_its_own(models: Models, pool: ThreadPoolExecutor) -> None:
    second = Models(models.root, start=False)
    start = pool.submit(second.lifecycle.start, second.config("a", "missing"))
    second.wait_for("a", 1)
    assert not start.done()
    second.lifecycle.apply(second.config("a", "b"))
    assert start.result(30) is None
    assert {1} == second.registry.available("b")
    second.lifecycle.stop()


def test_stopping_ends_a_start(tmp_path: Path) -> None:
    lifecycle = Lifecycle(Registry(), load, LifecycleOptions())
    start = threading.Thread(target=lifecycle.start, args=({"m": ModelConfig("m", str(tmp_path / "m"))},))
    start.start()
    lifecycle.stop()
    start.join(30)
    assert not start.is_alive()


def test_a_failed_model_is_reported_once(models: Models) -> None:
    with pytest.raises(StatusError) as caught:
        models.reload("a", "broken")
    assert Code.UNKNOWN is caught.value.code
    models.reload("a", "broken")


def test_a_disk_that_does_not_answer_while_base_paths_are_checked_delays_no_other_call(
    models: Models, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.reload("a")
    is_checked, answers = threading.Event(), threading.Event()

    def check(*_: object) -> None:
        is_checked.set()
        answers.wait(30)

    monkeypatch.setattr(lifecycle_module, "check_base_paths", check)
    applied = [pool.submit(models.reload, "a", "b"), pool.submit(models.lifecycle.apply, models.config("a", "c"))]
    assert is_checked.wait(30)
    assert {1} == pool.submit(models.registry.available, "a").result(5)
    answers.set()
    wait(applied, timeout=30)
