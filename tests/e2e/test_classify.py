"""Many photos through a real server: nothing is lost or repeated when the job is killed, or the server is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import model_makers
import pytest
from server_process import ServerProcess

PHOTOS = 3000

Start = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that says of an image how many bytes it has."""
    return model_makers.sizing(tmp_path_factory.mktemp("model") / "sizing").parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 1 byte, 2 bytes and so on, named by their sizes, the last of which is no image."""
    folder = tmp_path_factory.mktemp("photos")
    for size in range(1, PHOTOS + 1):
        (folder / f"{size}.jpg").write_bytes(b"bad".ljust(size) if size == PHOTOS else b"x" * size)
    return folder


@pytest.fixture(scope="module")
def start(base_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Start servers of the model, which are stopped in the end."""
    logs = tmp_path_factory.mktemp("logs")
    started = []

    def start(*flags: str) -> ServerProcess:
        log = logs / str(len(started))
        started.append(ServerProcess("--model_name=sizing", f"--model_base_path={base_path}", *flags, log=log))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def port(start: Start) -> int:
    """Where a server that stays listens."""
    return start().port


def begin(port: int, folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start the job, with small requests, so that there are many moments at which it may end."""
    command = [
        sys.executable,
        "-m",
        "savedmodel_bakery.client",
        "classify",
        "-m",
        "sizing",
        "--port",
        str(port),
        "--jobs",
        "4",
    ]
    return subprocess.Popen([*command, "--batch-size", "2", str(folder), "--out", str(out)], stderr=subprocess.PIPE)


def wait_for_rows(journal: Path, rows: int, process: subprocess.Popen[bytes]) -> None:
    while not journal.exists() or journal.read_bytes().count(b"\n") < rows:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.005)


def check(rows: list[dict[str, Any]], folder: Path) -> None:
    """Each photo has one row, and it is right."""
    assert sorted(str(folder / f"{size}.jpg") for size in range(1, PHOTOS + 1)) == sorted(row["image"] for row in rows)
    for row in rows:
        size = int(Path(row["image"]).stem)
        expected = (False, None, "no image", []) if size == PHOTOS else (True, str(size), None, [size, 0])
        assert expected == (row["ok"], row["label"], row["error"], [scored["class_id"] for scored in row["top"]])
    assert {("sizing", 1, "top_k")} == {(row["model"], row["version"], row["signature"]) for row in rows}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_killed_again_and_again_it_goes_on_where_it_was(port: int, folder: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    journal = out if name == "rows.jsonl" else tmp_path / f"{name}.jsonl"
    kept = b""
    for rows in (300, 1200):
        job = begin(port, folder, out)
        wait_for_rows(journal, rows, job)
        job.kill()
        job.communicate()
        whole = journal.read_bytes()[: journal.read_bytes().rindex(b"\n") + 1]
        assert whole.startswith(kept)
        kept = whole
    assert kept.count(b"\n") < PHOTOS
    job = begin(port, folder, out)
    job.communicate()
    assert 4 == job.returncode
    if name == "rows.jsonl":
        assert out.read_bytes().startswith(kept)
        check([json.loads(line) for line in out.read_text().splitlines()], folder)
    else:
        import pyarrow.parquet as pq

        check(pq.read_table(out).to_pylist(), folder)
        assert not journal.exists()


def test_a_server_that_is_killed_and_one_that_is_stopped_underway_cost_no_row(
    start: Start, folder: Path, tmp_path: Path
) -> None:
    server, out = start(), tmp_path / "rows.jsonl"
    port = server.port
    job = begin(port, folder, out)
    for rows, number in ((300, signal.SIGKILL), (900, signal.SIGTERM)):
        wait_for_rows(out, rows, job)
        os.kill(server.process.pid, number)
        server.process.wait()
        assert out.read_bytes().count(b"\n") < PHOTOS
        server = start(f"--port={port}")
    _, said = job.communicate()
    assert 4 == job.returncode, said
    check([json.loads(line) for line in out.read_text().splitlines()], folder)
