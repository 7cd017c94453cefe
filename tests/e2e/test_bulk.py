"""A bulk job on a real server loses and repeats no photo if the job or the server is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import model_makers
import pytest
from server_process import ServerProcess
from waiting import wait_until

PHOTOS = 3000

Start = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model whose label is the number of bytes of the image."""
    return model_makers.sizing(tmp_path_factory.mktemp("model") / "sizing").parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of 1 byte, 2 bytes and so on, named after their sizes; the last is not an image."""
    folder = tmp_path_factory.mktemp("photos")
    for size in range(1, PHOTOS + 1):
        (folder / f"{size}.jpg").write_bytes(b"bad".ljust(size) if size == PHOTOS else b"x" * size)
    return folder


@pytest.fixture(scope="module")
def start(base_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return a function that starts a server of the model; all are stopped at the end."""
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
    """GRPC port of a server that keeps running."""
    return start().port


def start_job(port: int, folder: Path, out: Path) -> subprocess.Popen[bytes]:
    """Start a job with many small requests, so that it can be interrupted at many points."""
    command = [sys.executable, "-m", "savedmodel_bakery.client", "classify", "-m", "sizing", "--port", str(port)]
    options = ["--jobs", "4", "--batch-size", "2", str(folder), "--out", str(out)]
    return subprocess.Popen([*command, *options], stderr=subprocess.PIPE)


def wait_for_rows(journal: Path, rows: int, process: subprocess.Popen[bytes]) -> None:
    def has_rows() -> bool:
        return journal.exists() and journal.read_bytes().count(b"\n") >= rows

    wait_until(lambda: has_rows() or process.poll() is not None, interval_s=0.005)
    assert process.poll() is None, process.stderr and process.stderr.read()


def check(rows: list[dict[str, Any]], folder: Path) -> None:
    """Assert that each photo has exactly one row, with the correct values."""
    assert sorted(str(folder / f"{size}.jpg") for size in range(1, PHOTOS + 1)) == sorted(row["image"] for row in rows)
    for row in rows:
        size = int(Path(row["image"]).stem)
        expected = (False, None, "no image", []) if size == PHOTOS else (True, str(size), None, [size, 0])
        assert expected == (row["ok"], row["label"], row["error"], [scored["class_id"] for scored in row["top"]])
    assert {("sizing", 1, "top_k")} == {(row["model"], row["version"], row["signature"]) for row in rows}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_job_killed_repeatedly_continues_where_it_stopped(port: int, folder: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    journal = out if name == "rows.jsonl" else tmp_path / f"{name}.jsonl"
    kept = b""
    for rows in (300, 1200):
        job = start_job(port, folder, out)
        wait_for_rows(journal, rows, job)
        job.kill()
        job.communicate()
        complete = journal.read_bytes()[: journal.read_bytes().rindex(b"\n") + 1]
        assert complete.startswith(kept)
        kept = complete
    assert kept.count(b"\n") < PHOTOS
    job = start_job(port, folder, out)
    job.communicate()
    assert 4 == job.returncode
    if name == "rows.jsonl":
        assert out.read_bytes().startswith(kept)
        check([json.loads(line) for line in out.read_text().splitlines()], folder)
    else:
        import pyarrow.parquet as pq

        check(pq.read_table(out).to_pylist(), folder)
        assert not journal.exists()


def test_killing_and_stopping_the_server_loses_no_row(start: Start, folder: Path, tmp_path: Path) -> None:
    server, out = start(), tmp_path / "rows.jsonl"
    port = server.port
    job = start_job(port, folder, out)
    for rows, number in ((300, signal.SIGKILL), (900, signal.SIGTERM)):
        wait_for_rows(out, rows, job)
        os.kill(server.process.pid, number)
        server.process.wait()
        assert out.read_bytes().count(b"\n") < PHOTOS
        server = start(f"--port={port}")
    _, stderr = job.communicate()
    assert 4 == job.returncode, stderr
    check([json.loads(line) for line in out.read_text().splitlines()], folder)
