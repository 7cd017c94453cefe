"""Versions appear, disappear and fail while the server runs, and requests for the model keep succeeding."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import model_makers
import numpy as np
import pytest
import requests
from server_process import ServerProcess
from waiting import wait_until

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models import scanner
from savedmodel_bakery.serving.models.lifecycle import Lifecycle
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.models.registry import ModelChoice, Registry, State
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions
from savedmodel_bakery.serving.options.config_files import single_model
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.tensors import Tensor

FLAGS = ("--model_name=m", "--max_num_load_retries=2", "--load_retry_interval_micros=300000")


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    """Base path of a model with version 1."""
    model_makers.half_plus(tmp_path / "m", 1, plus=1.0)
    return tmp_path / "m"


@pytest.fixture
def server(base_path: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(*FLAGS, f"--model_base_path={base_path}", log=tmp_path / "log") as running:
        yield running


def predictions(server: ServerProcess, version: str = "") -> object:
    """Return the predictions for 0, or the status code of an error; each version predicts its own number."""
    response = requests.post(f"{server.url}/v1/models/m{version}:predict", json={"instances": [0.0]}, timeout=30)
    return response.json().get("predictions", response.status_code)


def states(server: ServerProcess) -> dict[str, str]:
    response = requests.get(f"{server.url}/v1/models/m", timeout=30).json()
    return {entry["version"]: entry["state"] for entry in response.get("model_version_status", [])}


def wait_for_states(server: ServerProcess, expected: dict[str, str]) -> None:
    wait_until(
        lambda: states(server) == expected,
        describe=lambda: f"expected {expected}, not {states(server)}\n{server.log.read_text()}",
    )


def test_a_new_version_takes_over_without_a_failed_request(server: ServerProcess, base_path: Path) -> None:
    received, stop = [], threading.Event()

    def send_requests() -> None:
        while not stop.is_set():
            received.append(predictions(server))

    callers = [threading.Thread(target=send_requests) for _ in range(4)]
    for caller in callers:
        caller.start()
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_for_states(server, {"1": "END", "2": "AVAILABLE"})
    wait_until(lambda: [2.0] in received)
    stop.set()
    for caller in callers:
        caller.join()
    assert {(1.0,), (2.0,)} == {tuple(values) if isinstance(values, list) else values for values in received}
    assert predictions(server, "/versions/1") == 404


def test_a_failing_version_leaves_the_old_one_available(server: ServerProcess, base_path: Path) -> None:
    model_makers.broken(base_path, 2)
    wait_for_states(server, {"1": "AVAILABLE", "2": "LOADING"})
    wait_for_states(server, {"1": "AVAILABLE", "2": "END"})
    assert predictions(server) == [1.0]
    response = requests.get(f"{server.url}/v1/models/m/versions/2", timeout=30).json()
    assert response["model_version_status"][0]["status"]["error_code"] != "OK"


def test_a_version_completed_between_attempts_is_loaded(server: ServerProcess, base_path: Path) -> None:
    path = model_makers.half_plus(base_path.parent / "whole", 2, plus=2.0)
    (base_path / "2").mkdir()
    wait_for_states(server, {"1": "AVAILABLE", "2": "LOADING"})
    shutil.copytree(path, base_path / "2", dirs_exist_ok=True)
    wait_for_states(server, {"1": "END", "2": "AVAILABLE"})


def test_a_failed_version_is_loaded_again_after_it_was_removed(server: ServerProcess, base_path: Path) -> None:
    """Loading version 3 proves that the server has scanned the disk since version 2 was removed."""
    model_makers.broken(base_path, 2)
    wait_for_states(server, {"1": "AVAILABLE", "2": "END"})
    shutil.rmtree(base_path / "2")
    model_makers.half_plus(base_path, 3, plus=3.0)
    wait_for_states(server, {"1": "END", "2": "END", "3": "AVAILABLE"})
    shutil.rmtree(base_path / "3")
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_for_states(server, {"1": "END", "2": "AVAILABLE", "3": "END"})
    assert predictions(server) == [2.0]


def test_folders_whose_names_are_not_numbers_are_ignored(server: ServerProcess, base_path: Path) -> None:
    """Loading version 2 proves that the server has scanned the disk since."""
    model_makers.half_plus(base_path, "3.tmp", plus=3.0)
    model_makers.half_plus(base_path, ".staging-x", plus=3.0)
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_for_states(server, {"1": "END", "2": "AVAILABLE"})


def test_deleting_the_highest_version_reloads_the_lower_one(server: ServerProcess, base_path: Path) -> None:
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_for_states(server, {"1": "END", "2": "AVAILABLE"})
    shutil.rmtree(base_path / "2")
    wait_for_states(server, {"1": "AVAILABLE", "2": "END"})
    assert predictions(server) == [1.0]


def test_a_model_without_versions_is_unloaded_and_loaded_again(server: ServerProcess, base_path: Path) -> None:
    away = base_path / "1"
    away.rename(base_path / "1.away")
    wait_for_states(server, {"1": "END"})
    assert predictions(server) == 404
    (base_path / "1.away").rename(away)
    wait_for_states(server, {"1": "AVAILABLE"})
    assert predictions(server) == [1.0]


def test_a_missing_base_path_leaves_the_model_available(server: ServerProcess, base_path: Path) -> None:
    base_path.rename(base_path.parent / "away")
    server.wait_for_log("Could not find base path")
    assert predictions(server) == [1.0]


def test_a_base_path_that_stays_away_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And again when the error changes, or after the base path was there."""
    scans: Counter[Path] = Counter()
    scan = scanner.wanted_versions

    def wanted_versions(config: ModelConfig) -> dict[int, Path]:
        scans[config.folder] += 1
        return scan(config)

    def wait_for_scans() -> None:
        path, before = tmp_path / "m", scans[tmp_path / "m"]
        wait_until(lambda: scans[path] >= before + 3, interval_s=0.005)

    monkeypatch.setattr(scanner, "wanted_versions", wanted_versions)
    running = Lifecycle(Registry(), load=None, options=LifecycleOptions(poll_wait_s=0.01))
    starting = threading.Thread(target=running.start, args=(single_model("m", str(tmp_path / "m")),))
    starting.start()
    wait_for_scans()
    (tmp_path / "m").write_text("a file")
    wait_for_scans()
    (tmp_path / "m").unlink()
    wait_for_scans()
    (tmp_path / "m").mkdir()
    wait_for_scans()
    (tmp_path / "m").rmdir()
    wait_for_scans()
    running.stop()
    starting.join()
    errors = [record.getMessage() for record in caplog.records if "filesystem access error" in record.getMessage()]
    missing, not_a_folder = "No such file or directory", "Not a directory"
    assert [missing, not_a_folder, missing, missing] == [error.rpartition("with error ")[2] for error in errors]


def test_unloading_waits_for_running_requests(base_path: Path) -> None:
    registry = Registry()
    lifecycle = Lifecycle(registry, partial(load, options=LoadOptions()), LifecycleOptions(poll_wait_s=0.01))
    lifecycle.start(single_model("m", str(base_path)))

    def registered() -> dict[int, State]:
        return {version.number: version.state for version in registry.statuses(ModelChoice("m"))}

    with registry.acquire(ModelChoice("m")) as servable:
        model_makers.half_plus(base_path.parent / "whole", 2, plus=2.0).rename(base_path / "2")
        wait_until(lambda: registered() == {1: State.UNLOADING, 2: State.AVAILABLE})
        feeds = {"x:0": Tensor(np.float32([0]), dtypes.BY_NAME["float"])}
        assert [[1.0]] == [tensor.array.tolist() for tensor in servable.runtime.run(feeds, ["y:0"], RequestContext())]
    wait_until(lambda: registered() == {1: State.END, 2: State.AVAILABLE})
    lifecycle.stop()
