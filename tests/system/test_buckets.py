"""`bakery publish`, `pull` and a server with S3, which is moto's: killed, interrupted, throttled and not alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import model_makers
import pytest
import requests
import s3_server
from server_process import ServerProcess, free_port
from stored_versions import contents, stored, write_version
from waiting import wait_until

from savedmodel_bakery.storage.manifest import MANIFEST
from savedmodel_bakery.storage.publish import publish, published_versions, remove
from savedmodel_bakery.storage.store import Store, open_store

MOMENTS = 20


@pytest.fixture(scope="module")
def s3_port() -> Iterator[int]:
    with s3_server.run_s3() as port:
        yield port


@pytest.fixture
def base(s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in s3_server.environment(s3_port).items():
        monkeypatch.setenv(name, value)
    return open_store(f"s3://{s3_server.BUCKET}/{tmp_path.name}")


def start(*arguments: object, port: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "savedmodel_bakery", *map(str, arguments)],
        env={**os.environ, **s3_server.environment(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: object, port: int) -> tuple[int, str, str]:
    process = start(*arguments, port=port)
    stdout, stderr = process.communicate(timeout=120)
    return process.returncode, stdout, stderr


def stopping(number: int, signum: int) -> tuple[Callable[[int, str], bool], list[subprocess.Popen[str]]]:
    """Return a function for `run_proxy` that sends a signal to the started process before a request."""
    started: list[subprocess.Popen[str]] = []

    def before(count: int, _: str) -> bool:
        if count == number:
            started[0].send_signal(signum)
            if signum == signal.SIGKILL:
                started[0].wait(10)
        return True

    return before, started


def files_of(version: Store) -> Mapping[str, bytes]:
    return {name: content for name, content in stored(version).items() if name != MANIFEST}


@pytest.mark.timeout(300)
def test_publishers_that_are_killed_leave_no_incomplete_version_and_continue(
    base: Store, s3_port: int, tmp_path: Path
) -> None:
    """Two moments share a version: the second process continues what the first began, and is killed too."""
    files = contents(write_version(tmp_path / "2"))
    killed = 0
    for moment in range(1, MOMENTS + 1):
        before, started = stopping(moment, signal.SIGKILL)
        version = base.below(str((moment + 1) // 2))
        arguments = ("publish", tmp_path / "2", base, "--version", version.name)
        with s3_server.run_proxy(s3_port, before) as port:
            started.append(start(*arguments, port=port))
            started[0].communicate(timeout=60)
        killed += started[0].returncode == -signal.SIGKILL
        for number in published_versions(base):
            assert files == files_of(base.below(str(number)))
        if moment % 2 == 0:
            assert (0, f"{version}\n") == run(*arguments, port=s3_port)[:2]
            assert files == files_of(version)
    assert killed >= MOMENTS // 2


@pytest.mark.timeout(300)
def test_pulls_that_are_killed_leave_nothing_that_a_server_loads_and_are_repeated(
    base: Store, s3_port: int, tmp_path: Path
) -> None:
    write_version(tmp_path / "2")
    assert 0 == run("publish", tmp_path / "2", base, port=s3_port)[0]
    for moment in range(1, 9):
        before, started = stopping(moment, signal.SIGKILL)
        with s3_server.run_proxy(s3_port, before) as port:
            started.append(start("pull", base, tmp_path / "copy", port=port))
            started[0].communicate(timeout=60)
        assert -signal.SIGKILL == started[0].returncode
        assert not (tmp_path / "copy" / "2").exists()
    assert (0, f"{tmp_path}/copy/2\n") == run("pull", base, tmp_path / "copy", port=s3_port)[:2]
    assert stored(base.below("2")) == contents(tmp_path / "copy" / "2")
    assert ["2"] == [path.name for path in (tmp_path / "copy").iterdir()], "remains of killed pulls"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("command", ["publish", "pull"])
def test_an_interrupted_command_ends_with_one_line_and_is_continued(
    base: Store, s3_port: int, tmp_path: Path, command: str, signum: int
) -> None:
    write_version(tmp_path / "2")
    arguments: tuple[object, ...] = ("publish", tmp_path / "2", base)
    if command == "pull":
        assert 0 == run(*arguments, port=s3_port)[0]
        arguments = ("pull", base.below("2"), tmp_path / "copy")
    before, started = stopping(6, signum)
    with s3_server.run_proxy(s3_port, before) as port:
        started.append(start(*arguments, port=port))
        _, stderr = started[0].communicate(timeout=60)
    assert 130 == started[0].returncode
    expected = f"interrupted; to continue, run: python -m savedmodel_bakery {' '.join(map(str, arguments))}"
    assert expected == stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    assert not list(tmp_path.glob("copy/*"))
    assert 0 == run(*arguments, port=s3_port)[0]


def test_a_folder_follows_the_bucket_through_errors_until_it_is_stopped(
    base: Store, s3_port: int, tmp_path: Path
) -> None:
    write_version(tmp_path / "source")
    publish(tmp_path / "source", base, 1)
    is_down = False
    with s3_server.run_proxy(s3_port, lambda *_: not is_down) as port:
        watching = start("pull", base, tmp_path / "copy", "--watch", 0.1, port=port)
        assert watching.stdout is not None
        assert f"{tmp_path}/copy/1\n" == watching.stdout.readline()
        is_down = True
        publish(tmp_path / "source", base, 2)
        assert watching.stderr is not None
        assert any("reduce your request rate" in line for line in iter(watching.stderr.readline, ""))
        is_down = False
        assert f"{tmp_path}/copy/2\n" == watching.stdout.readline()
        remove(base.below("2"))
        assert f"{tmp_path}/copy/1\n" == watching.stdout.readline()
        watching.terminate()
        _, stderr = watching.communicate(timeout=60)
    assert (130, "interrupted; to continue, run: ") == (watching.returncode, stderr.splitlines()[-1][:31])
    assert stored(base.below("1")) == contents(tmp_path / "copy" / "1")


def test_requests_that_are_throttled_are_repeated(base: Store, s3_port: int, tmp_path: Path) -> None:
    """Each second request gets 503 SlowDown."""
    files = contents(write_version(tmp_path / "2"))
    with s3_server.run_proxy(s3_port, lambda number, _: number % 2 == 0) as port:
        assert 0 == run("publish", tmp_path / "2", base, port=port)[0]
        assert 0 == run("pull", base, tmp_path / "copy", port=port)[0]
    assert files == files_of(base.below("2"))
    assert stored(base.below("2")) == contents(tmp_path / "copy" / "2")


def test_of_publishers_of_the_same_version_one_wins_and_its_files_are_whole(
    base: Store, s3_port: int, tmp_path: Path
) -> None:
    versions = [write_version(tmp_path / name / "2", name) for name in ("first", "second", "third")]
    processes = [start("publish", folder, base, port=s3_port) for folder in versions]
    codes = [process.communicate(timeout=120) and process.returncode for process in processes]
    assert [0, 1, 1] == sorted(codes)
    assert contents(versions[codes.index(0)]) == files_of(base.below("2"))


def server_environment(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    for name, value in s3_server.environment(port).items():
        monkeypatch.setenv(name, value)


def versions(server: ServerProcess, model: str = "m") -> dict[str, str]:
    response = requests.get(f"{server.url}/v1/models/{model}", timeout=30).json()
    return {entry["version"]: entry["state"] for entry in response.get("model_version_status", [])}


def predict(server: ServerProcess, model: str = "m") -> object:
    """Return the prediction for 0, which is the number of the version."""
    response = requests.post(f"{server.url}/v1/models/{model}:predict", json={"instances": [0.0]}, timeout=30)
    return response.json().get("predictions", response.text)


def wait_for_prediction(server: ServerProcess, number: float, model: str = "m") -> None:
    wait_until(lambda: predict(server, model) == [number], describe=lambda: (number, server.log.read_text()))


@pytest.mark.timeout(300)
def test_a_server_follows_the_bucket_and_the_policies_of_its_models(
    base: Store, s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through uploads that are unfinished, withdrawn versions, pruning, and a storage that throttles."""
    for number in (1, 2, 3):
        model_makers.half_plus(tmp_path / "source", number, plus=float(number))
    for number in (1, 2):
        publish(tmp_path / "source" / str(number), base, number)
    config = tmp_path / "models.config"
    entry = f'base_path: "{base}" model_platform: "tensorflow"'
    config.write_text(
        f'model_config_list {{ config {{ name: "m" {entry} }} '
        f'config {{ name: "pinned" {entry} model_version_policy {{ specific {{ versions: 1 }} }} }} }}'
    )
    cache = tmp_path / "cache"
    is_throttling = False
    with s3_server.run_proxy(s3_port, lambda *_: not is_throttling) as port:
        server_environment(monkeypatch, port)
        flags = (f"--model_config_file={config}", f"--model_cache_dir={cache}", "--max_num_load_retries=0")
        with ServerProcess(*flags, log=tmp_path / "log") as server:
            assert ([2.0], [1.0]) == (predict(server), predict(server, "pinned"))
            partial = base.below("4")
            partial.create("variables/variables.index", b"unfinished")
            publish(tmp_path / "source" / "3", base, 3)
            wait_for_prediction(server, 3.0)
            wait_until(lambda: ["1", "3"] == sorted(path.name for path in cache.glob("*/[0-9]*")))
            is_throttling = True
            server.wait_for_log("Please reduce your request rate")
            assert ([3.0], [1.0]) == (predict(server), predict(server, "pinned"))
            is_throttling = False
            remove(base.below("3"))
            wait_for_prediction(server, 2.0)
            assert {"1": "AVAILABLE"} == versions(server, "pinned")
            published = base.below("5")
            publish(tmp_path / "source" / "3", base, 5).remove("variables/variables.index")
            reason = f"{published} is damaged: variables/variables.index is missing"
            server.wait_for_log(reason)
            assert {"5": "START", "2": "AVAILABLE"}.items() <= versions(server).items()
            log = server.log.read_text()
            assert 1 == log.count(reason)
            assert "Traceback" not in log


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect to the endpoint URL"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "Unable to locate credentials"),
    ],
    ids=["unreachable", "no credentials"],
)
def test_a_bucket_that_cannot_be_listed_ends_the_start(
    base: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], reason: str
) -> None:
    for name, value in variables.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    flags = (f"--model_base_path={base}", f"--model_cache_dir={tmp_path / 'cache'}")
    server = ServerProcess(*flags, log=tmp_path / "log", wait=False)
    assert 255 == server.process.wait(120)
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.startswith("Failed to start server. Error: ")
    assert f"cannot list {base}: {reason}" in last


def test_bakery_serve_takes_a_url(base: Store, s3_port: int, tmp_path: Path) -> None:
    publish(model_makers.half_plus(tmp_path / "source", 1, plus=1.0), base, 1)
    ports = ("--port", free_port(), "--rest-api-port", free_port(), "--model-cache-dir", tmp_path / "cache")
    serving = start("serve", base, "--name", "m", *ports, port=s3_port)
    assert serving.stdout is not None
    assert "Serving m. Press Ctrl-C to stop.\n" == serving.stdout.readline()
    serving.terminate()
    serving.communicate(timeout=60)
    code, _, error = run("serve", base.below("7"), port=s3_port)
    listing, last = error.splitlines()
    assert (1, f"listing {base}/7 …") == (code, listing)
    assert f"error: no complete version in {base}/7: not found" == last
