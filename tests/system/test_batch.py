"""The job on Ray gives the rows of the local job, and loses and repeats none when what runs it is killed."""

from __future__ import annotations

import functools
import io
import os
import re
import secrets
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import model_makers
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from server_process import ServerProcess, free_port

pytestmark = pytest.mark.timeout(400)

T = TypeVar("T")

STEPS = 3000  # a batch takes some 20 ms
FILES, MEMBERS, ROWS = 2500, 300, 200
PARTS = 2500 // 256


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that says of an image how many bytes it has, and takes its time."""
    return model_makers.sizing(tmp_path_factory.mktemp("model") / "sizing", steps=STEPS).parent


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in files, some listed too, in tar and Parquet; one is none, and an archive is damaged."""
    root = tmp_path_factory.mktemp("inputs")
    (root / "folder").mkdir()
    for size in range(1, FILES + 1):
        (root / "folder" / f"{size}.jpg").write_bytes(b"bad" if size == FILES else b"x" * size)
    with tarfile.open(root / "members.tar", "w") as archive:
        for size in range(1, MEMBERS + 1):
            member = tarfile.TarInfo(f"{size}.jpg")
            member.size = size
            archive.addfile(member, io.BytesIO(b"x" * size))
    sizes = range(1, ROWS + 1)
    table = pa.table({"image": [f"row {size}" for size in sizes], "content": [b"x" * size for size in sizes]})
    pq.write_table(table, root / "rows.parquet")
    pq.write_table(
        pa.table({"image": [str(root / "folder" / f"{size}.jpg") for size in sizes]}), root / "again.parquet"
    )
    (root / "none.tar").write_bytes(b"none")
    return root


@pytest.fixture(scope="module")
def local_rows(base_path: Path, inputs: Path) -> pa.Table:
    """What the local job writes."""
    out = inputs.parent / "local.parquet"
    flags = ("--model_name=sizing", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=inputs.parent / "log") as server:
        command = [
            sys.executable,
            "-m",
            "savedmodel_bakery.client",
            "classify",
            "-m",
            "sizing",
            "--port",
            str(server.port),
        ]
        assert 4 == subprocess.run([*command, str(inputs), "--out", str(out)], check=False).returncode
    return by_image(pq.read_table(out))


def by_image(table: pa.Table) -> pa.Table:
    assert len(set(table["image"].to_pylist())) == table.num_rows
    return table.sort_by("image")


def begin(base_path: Path, inputs: Path, out: Path, log: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "savedmodel_bakery.serving",
        "batch",
        str(inputs),
        "--model_name=sizing",
        "--actors=2",
    ]
    with log.open("wb") as output:
        return subprocess.Popen([*command, f"--model_base_path={base_path}", "--out", str(out)], stderr=output)


@pytest.fixture
def job(base_path: Path, inputs: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The job underway, with its first part written."""
    process = begin(base_path, inputs, tmp_path / "out", tmp_path / "log")
    while len(parts(tmp_path)) < 2:
        assert process.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.02)
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait()


def parts(folder: Path) -> dict[Path, bytes]:
    """The parts that are whole."""
    found = {path: path.read_bytes() for path in (folder / "out").glob("*.parquet")}
    return {path: content for path, content in found.items() if content[4:].endswith(b"PAR1")}


def actors(job: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes that hold the model."""
    below = psutil.Process(job.pid).children(recursive=True)
    return [process for process in below if "Classifier" in " ".join(of_running(process.cmdline))]


def of_running(ask: Callable[[], list[T]]) -> list[T]:
    """What is asked about a process; nothing of one that has ended, as Ray's come and go."""
    try:
        return ask()
    except psutil.NoSuchProcess:
        return []


def test_an_actor_that_is_killed_costs_no_row(
    job: subprocess.Popen[bytes], local_rows: pa.Table, tmp_path: Path
) -> None:
    """All the while nothing listens but on the loopback address."""
    processes = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    listening = [
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes
        for connection in of_running(functools.partial(process.net_connections, "inet"))
        if connection.status == psutil.CONN_LISTEN
    ]
    assert {"127.0.0.1"} == set(listening)
    first, _ = actors(job)
    os.kill(first.pid, signal.SIGKILL)
    assert len(parts(tmp_path)) < PARTS
    assert 4 == job.wait(), (tmp_path / "log").read_text()
    assert local_rows.equals(by_image(pq.read_table(tmp_path / "out")))


def test_a_job_that_is_killed_goes_on_where_it_was(
    job: subprocess.Popen[bytes], local_rows: pa.Table, base_path: Path, inputs: Path, tmp_path: Path
) -> None:
    job.kill()
    job.wait()
    before = parts(tmp_path)
    assert 2 <= len(before) < PARTS
    torn = min(before)
    torn.write_bytes(before.pop(torn)[:-9])
    assert 4 == begin(base_path, inputs, tmp_path / "out", tmp_path / "log").wait(), (tmp_path / "log").read_text()
    assert before == {path: path.read_bytes() for path in before}
    assert local_rows.equals(by_image(pq.read_table(tmp_path / "out")))
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert f"{local_rows.num_rows} photos, 2 of them could not be classified" == last


def test_a_part_that_is_lost_is_noticed(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    min(parts(tmp_path)).unlink()
    assert 1 == job.wait()
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert last.endswith(" and maybe others have no row; started again, the job goes on")


def test_relative_inputs_are_found_on_a_cluster_that_was_started_elsewhere(base_path: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "7.jpg").write_bytes(b"x" * 7)
    pq.write_table(pa.table({"image": ["5"], "content": [b"x" * 5]}), tmp_path / "in" / "a.parquet")
    port = free_port()
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    options = [f"--port={port}", "--num-cpus=3", "--include-dashboard=false", "--disable-usage-stats"]
    # It listens on the loopback address alone, as the job's own Ray does, and answers those who know its token.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", **token}
    cluster = subprocess.Popen([*ray, *options], cwd="/", env=environment, stdout=subprocess.PIPE)
    try:
        assert cluster.stdout is not None
        assert any(b"Ray runtime started" in line for line in cluster.stdout)
        flags = ("--model_name=sizing", f"--model_base_path={base_path}", f"--ray-address=127.0.0.1:{port}")
        command = [sys.executable, "-m", "savedmodel_bakery.serving", "batch", "in", *flags, "--out=rows"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    finally:
        cluster.terminate()
        cluster.communicate()
    found = {row["image"]: row["label"] for row in pq.read_table(tmp_path / "rows").to_pylist()}
    assert {"in/7.jpg": "7", "in/a.parquet/5": "5"} == found


def test_the_readmes_example(clone: Path, lite0: Path, tmp_path: Path) -> None:
    command = re.search(r"^\$ python -m (serving batch .*)$", (clone / "README.md").read_text(), re.MULTILINE)
    assert command is not None
    (tmp_path / "examples").symlink_to(clone / "examples")
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "efficientnet_lite0").symlink_to(lite0)
    subprocess.run(f"{sys.executable} -m {command[1]}", shell=True, cwd=tmp_path, check=True)
    found = {row["image"]: row["label"] for row in pq.read_table(tmp_path / "rows").to_pylist()}
    assert {"examples/chelsea.png": "tiger cat", "examples/coffee.png": "espresso"} == found


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("none", "there is no version of sizing under"),
        ("half_plus_two", 'Serving signature key "top_k" not found.'),
    ],
)
def test_a_model_that_cannot_be_used_is_one_line(tmp_path: Path, inputs: Path, model: str, error: str) -> None:
    (tmp_path / "none").mkdir()
    model_makers.half_plus(tmp_path / "half_plus_two", 1)
    assert 1 == begin(tmp_path / model, inputs, tmp_path / "out", tmp_path / "log").wait()
    assert error in (tmp_path / "log").read_text().splitlines()[-1]
