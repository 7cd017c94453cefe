"""SIGKILL at 8 random moments: 2 of bakes, 3 of bulk jobs, 3 of rollouts. The same command then completes the work."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import grpc
import grpc_calls
import model_makers
import numpy as np
import pytest
import tiny_models
from bulk_files import read_image_labels, write_photos
from model_servers import version_states
from server_process import ServerProcess
from steady_callers import SteadyCallers
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery.client.rollout.config_file import ConfigFile
from savedmodel_bakery.wire.model_config import Specific

BAKES, JOBS, ROLLOUTS = 2, 3, 3
PHOTOS = 1500


def run_s(command: Sequence[str], cwd: Path, *, code: int = 0) -> float:
    """Run a command that must end with an exit code, and return how long it took in seconds."""
    started_s = time.monotonic()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert code == done.returncode, done.stderr
    return time.monotonic() - started_s


def kill_within(command: Sequence[str], cwd: Path, *, after_s: float) -> bool:
    """Run a command and kill it after this time; return False if it has ended before."""
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        print(f"killed after {after_s:.2f} s")
        return True
    return False


@pytest.mark.timeout(300)
def test_of_bakes(workshop: Path, tmp_path: Path, moments: random.Random) -> None:
    """A server that loads every version it finds never finds an incomplete one."""
    base_path = tmp_path / "tiny"
    shutil.copytree(workshop / "baked" / "tiny", base_path)
    command = tiny_models.command(*tiny_models.bake_arguments(tmp_path))
    duration_s = 20.0
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "tiny" base_path: "{base_path}" model_platform: "tensorflow" '
        "model_version_policy { all {} } } }"
    )
    flags = (f"--model_config_file={config}", "--file_system_poll_wait_seconds=1", "--max_num_load_retries=0")
    with ServerProcess(*flags, log=tmp_path / "log") as server:

        def serves_all() -> bool:
            states = version_states(server, "tiny")
            assert {("AVAILABLE", "OK"), ("LOADING", "OK"), ("START", "OK")} >= set(states.values()), states
            return published() == {version for version, (state, _) in states.items() if state == "AVAILABLE"}

        def published() -> set[int]:
            return {int(path.name) for path in base_path.iterdir() if path.name.isdecimal()}

        kills = 0
        while kills < BAKES:
            if kill_within(command, workshop, after_s=moments.uniform(0, duration_s)):
                kills += 1
            else:
                duration_s *= 0.7
            wait_until(serves_all)
        run_s(command, workshop)
        wait_until(serves_all)
    assert {str(version) for version in published()} == {path.name for path in base_path.iterdir()}
    first, *others = ({*tiny_models.files(base_path / str(version))} for version in published())
    assert all(first == other for other in others)


@pytest.mark.timeout(300)
def test_of_bulk_jobs(sizing_server: ServerProcess, tmp_path: Path, moments: random.Random) -> None:
    """The same command continues: in the end each photo has exactly one row, with its label."""
    contents = {f"p{size}": b"x" * size for size in range(1, PHOTOS + 1)}
    write_photos(tmp_path / "photos", **contents)
    expected = sorted((f"photos/{key}.jpg", str(len(content))) for key, content in contents.items())

    def command(name: str) -> list[str]:
        job = [sys.executable, "-m", "savedmodel_bakery", "bulk", "photos", "--out", name]
        return [*job, "-m", "sizing", "--port", str(sizing_server.port)]

    duration_s = run_s(command("whole.parquet"), tmp_path)
    kills = 0
    for number in range(8 * JOBS):  # some end before they are killed
        name = f"rows{number}{('.jsonl', '.csv', '.parquet')[number % 3]}"
        kills += kill_within(command(name), tmp_path, after_s=moments.uniform(0, duration_s))
        run_s(command(name), tmp_path)
        assert expected == sorted(read_image_labels(str(tmp_path / name)))
        if kills == JOBS:
            break
    assert JOBS == kills
    assert [] == [path.name for path in tmp_path.iterdir() if path.name.startswith(".") or ".csv." in path.name]


CONFIG = """model_config_list {{
  config {{
    name: "halves"  # the only one
    base_path: "{base_path}"
    model_platform: "tensorflow"
    model_version_policy {{ specific {{ versions: 1 }} }}
    version_labels {{ key: "stable" value: 1 }}
  }}
}}
"""


@pytest.mark.timeout(300)
def test_of_rollouts(tmp_path: Path, moments: random.Random) -> None:
    """Callers of the label `stable` get an answer all the time, and the same command completes the step."""
    base_path, config = tmp_path / "halves", tmp_path / "models.config"
    for version in (1, 2):
        model_makers.half_plus(base_path, version, plus=float(version))
    config.write_text(CONFIG.format(base_path=base_path))
    steps = {
        "start": (["--canary", "2"], {1, 2}, {"stable": 1, "canary": 2}),
        "promote": (["--no-goldens"], {1, 2}, {"stable": 2, "previous": 1}),
        "rollback": ([], {1}, {"stable": 1}),
    }
    with (
        ServerProcess(
            f"--model_config_file={config}", "--allow_version_labels_for_unavailable_models", log=tmp_path / "log"
        ) as server,
        grpc.insecure_channel(server.target) as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def answer(label: str) -> float:
            request = grpc_calls.request(model="halves", label=label, x=np.float32([0]))
            return float(stub.Predict(request, timeout=10).outputs["y"].float_val[0])

        def command(step: str) -> list[str]:
            words = ["rollout", step, "halves", "--config", str(config), "-t", server.target, *steps[step][0]]
            return [sys.executable, "-m", "savedmodel_bakery", *words]

        with SteadyCallers({"stable": lambda: answer("stable") in (1, 2)}, interval_s=0.02) as callers:
            durations_s = {step: run_s(command(step), tmp_path) for step in steps}
            kills = 0
            while kills < ROLLOUTS:
                for step, (_, versions, labels) in steps.items():
                    is_killed = kill_within(command(step), tmp_path, after_s=moments.uniform(0, durations_s[step]))
                    kills += is_killed
                    if is_killed:
                        finish(command(step), tmp_path)
                    assert (versions, labels) == read_config(config)
                    states = version_states(server, "halves")
                    assert versions == {version for version, (state, _) in states.items() if state == "AVAILABLE"}
                    assert labels == {label: answer(label) for label in labels}
        callers.assert_served()
    assert CONFIG.format(base_path=base_path).split() == config.read_text().split()
    assert {"halves", "models.config", "log"} == {path.name for path in tmp_path.iterdir()}


def read_config(path: Path) -> tuple[set[int], dict[str, int]]:
    """Return the versions and the labels of the only model in a config file."""
    [model] = ConfigFile(path).models().values()
    assert isinstance(model.policy, Specific)
    return set(model.policy.versions), dict(model.labels)


def finish(command: Sequence[str], cwd: Path) -> None:
    """Run a step of a rollout again after it was killed; it may have been complete already, which the caller checks."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode or "has no canary" in done.stderr or "has neither" in done.stderr, done.stderr
