"""Versions come, go and fail under a running server, and a model that was served is never without an answer."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import model_makers
import pytest
import requests
from server_process import ServerProcess

FLAGS = ("--model_name=m", "--max_num_load_retries=2", "--load_retry_interval_micros=300000")


@pytest.fixture
def base_path(tmp_path: Path) -> Path:
    """Where the model's versions lie; version 1 is there."""
    model_makers.half_plus(tmp_path / "m", 1, plus=1.0)
    return tmp_path / "m"


@pytest.fixture
def server(base_path: Path, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(*FLAGS, f"--model_base_path={base_path}", log=tmp_path / "log") as running:
        yield running


def answer(server: ServerProcess, place: str = "") -> object:
    """What the model adds to half of 0: the number of the version that answers, in these tests."""
    reply = requests.post(f"{server.url}/v1/models/m{place}:predict", json={"instances": [0.0]}, timeout=30)
    return reply.json().get("predictions", reply.status_code)


def states(server: ServerProcess) -> dict[str, str]:
    reply = requests.get(f"{server.url}/v1/models/m", timeout=30).json()
    return {entry["version"]: entry["state"] for entry in reply.get("model_version_status", [])}


def wait_until(server: ServerProcess, expected: dict[str, str], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while (found := states(server)) != expected:
        assert time.monotonic() < end, f"expected {expected}, found {found}\n{server.log.read_text()}"
        time.sleep(0.05)


def test_a_new_version_takes_over_without_a_failed_request(server: ServerProcess, base_path: Path) -> None:
    found, stop = [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            found.append(answer(server))

    callers = [threading.Thread(target=ask) for _ in range(4)]
    for caller in callers:
        caller.start()
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_until(server, {"1": "END", "2": "AVAILABLE"})
    time.sleep(0.2)
    stop.set()
    for caller in callers:
        caller.join()
    assert {(1.0,), (2.0,)} == {tuple(values) if isinstance(values, list) else values for values in found}
    assert answer(server, "/versions/1") == 404


def test_a_version_that_fails_leaves_the_old_one_serving(server: ServerProcess, base_path: Path) -> None:
    model_makers.broken(base_path, 2)
    wait_until(server, {"1": "AVAILABLE", "2": "LOADING"})
    wait_until(server, {"1": "AVAILABLE", "2": "END"})
    assert answer(server) == [1.0]
    reply = requests.get(f"{server.url}/v1/models/m/versions/2", timeout=30).json()
    assert reply["model_version_status"][0]["status"]["error_code"] != "OK"


def test_a_version_completed_between_attempts_is_loaded_by_the_next(server: ServerProcess, base_path: Path) -> None:
    path = model_makers.half_plus(base_path.parent / "whole", 2, plus=2.0)
    (base_path / "2").mkdir()
    wait_until(server, {"1": "AVAILABLE", "2": "LOADING"})
    shutil.copytree(path, base_path / "2", dirs_exist_ok=True)
    wait_until(server, {"1": "END", "2": "AVAILABLE"})


def test_a_failed_version_is_tried_again_once_it_was_away(server: ServerProcess, base_path: Path) -> None:
    model_makers.broken(base_path, 2)
    wait_until(server, {"1": "AVAILABLE", "2": "END"})
    shutil.rmtree(base_path / "2")
    time.sleep(2.5)
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_until(server, {"1": "END", "2": "AVAILABLE"})
    assert answer(server) == [2.0]


def test_names_that_are_no_numbers_are_not_looked_at(server: ServerProcess, base_path: Path) -> None:
    model_makers.half_plus(base_path, "3.tmp", plus=3.0)
    model_makers.half_plus(base_path, ".staging-x", plus=3.0)
    time.sleep(2.5)
    assert {"1": "AVAILABLE"} == states(server)


def test_deleting_the_served_version_brings_the_lower_one_back(server: ServerProcess, base_path: Path) -> None:
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_until(server, {"1": "END", "2": "AVAILABLE"})
    shutil.rmtree(base_path / "2")
    wait_until(server, {"1": "AVAILABLE", "2": "END"})
    assert answer(server) == [1.0]


def test_a_model_goes_with_its_last_version_and_comes_back(server: ServerProcess, base_path: Path) -> None:
    away = base_path / "1"
    away.rename(base_path / "1.away")
    wait_until(server, {"1": "END"})
    assert answer(server) == 404
    (base_path / "1.away").rename(away)
    wait_until(server, {"1": "AVAILABLE"})
    assert answer(server) == [1.0]


def test_a_base_path_that_vanishes_leaves_the_model_served(server: ServerProcess, base_path: Path) -> None:
    base_path.rename(base_path.parent / "away")
    time.sleep(2.5)
    assert answer(server) == [1.0]


def test_unloading_waits_for_requests_in_flight(server: ServerProcess, base_path: Path) -> None:
    url = f"{server.url}/v1/models/m/versions/1:predict"
    steps = server.slow_steps("m", 1.5)
    found: list[object] = []

    def ask() -> None:
        found.append(requests.post(url, json={"signature_name": "slow", "inputs": 3 * steps}, timeout=60).json())

    caller = threading.Thread(target=ask)
    caller.start()
    model_makers.half_plus(base_path, 2, plus=2.0)
    wait_until(server, {"1": "END", "2": "AVAILABLE"})
    caller.join()
    assert [{"outputs": float(3 * steps)}] == found
