"""The bulk job on Ray writes the same rows as the local job, each exactly once, even if its processes are killed."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import model_makers
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from server_process import ServerProcess, free_port
from waiting import wait_until

pytestmark = pytest.mark.timeout(1200)

T = TypeVar("T")

STEPS = 1500  # a run takes about 10 ms
FILES, MEMBERS, ROWS = 2500, 300, 200
PARTS = 2500 // 256


@pytest.fixture(scope="module")
def base_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a slow model whose label is the number of bytes of the image."""
    return model_makers.sizing(tmp_path_factory.mktemp("model") / "sizing", steps=STEPS).parent


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos in files, a tar archive and Parquet, some listed twice; one photo and one archive are damaged."""
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
    """The rows that the local job writes."""
    out = inputs.parent / "local.parquet"
    flags = ("--model_name=sizing", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=inputs.parent / "log") as server:
        options = ["-m", "sizing", "--port", str(server.port), "--out", str(out)]
        command = [sys.executable, "-m", "savedmodel_bakery.client", "classify", str(inputs), *options]
        assert 4 == subprocess.run(command, check=False).returncode
    return by_image(pq.read_table(out))


def by_image(table: pa.Table) -> pa.Table:
    assert len(set(table["image"].to_pylist())) == table.num_rows
    return table.sort_by("image")


def start_job(base_path: Path, inputs: Path, out: Path, log: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "savedmodel_bakery", "bulk", "--engine=ray", str(inputs)]
    options = ["--model-name=sizing", f"--model-base-path={base_path}", "--actors=2", f"--out={out}", *more]
    with log.open("wb") as output:
        return subprocess.Popen([*command, *options], stderr=output)


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def job(base_path: Path, inputs: Path, metrics_port: int, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A running job that has written its first parts."""
    process = start_job(base_path, inputs, tmp_path / "out", tmp_path / "log", f"--metrics-port={metrics_port}")
    try:
        wait_until(lambda: len(parts(tmp_path)) >= 2 or process.poll() is not None, timeout_s=600)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield process
    finally:
        process.terminate()
        process.wait()


def parts(folder: Path) -> dict[Path, bytes]:
    """Return the complete parts and their content."""
    files = {path: path.read_bytes() for path in (folder / "out").glob("*.parquet")}
    return {path: content for path, content in files.items() if content[4:].endswith(b"PAR1")}


def actors(job: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return the processes of the actors."""
    children = psutil.Process(job.pid).children(recursive=True)
    return [process for process in children if "Classifier" in " ".join(unless_ended(process.cmdline))]


def unless_ended(query: Callable[[], list[T]]) -> list[T]:
    """Return the result of a process query; an empty list if the process has ended, as Ray's workers often do."""
    try:
        return query()
    except psutil.NoSuchProcess:
        return []


def check_progress(job: subprocess.Popen[bytes], metrics_port: int, folder: Path) -> None:
    """Check that the metrics have what has been written."""
    page: dict[str, float] = {}

    def has_parts() -> bool:
        assert job.poll() is None, (folder / "log").read_text()
        lines = requests.get(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10).text.splitlines()
        samples = (line.rpartition(" ") for line in lines if line.startswith("bakery_bulk_"))
        page.update({name: float(value) for name, _, value in samples})
        return page["bakery_bulk_parts_total"] >= 2

    wait_until(has_parts, describe=lambda: page)  # the page may be behind the files
    assert FILES + MEMBERS + ROWS + 1 == page["bakery_bulk_expected_photos"]  # none.tar has a row too
    assert 2 <= page["bakery_bulk_parts_total"] < PARTS
    assert 256 < page['bakery_bulk_photos_total{outcome="ok"}'] < FILES
    assert 2 >= page['bakery_bulk_photos_total{outcome="failed"}']


def check_listening(job: subprocess.Popen[bytes], metrics_port: int) -> None:
    """Check that Ray listens on the loopback address only."""
    processes = [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]
    listening = [
        connection.laddr.ip.removeprefix("::ffff:")
        for process in processes
        for connection in unless_ended(functools.partial(process.net_connections, "inet"))
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port != metrics_port
    ]
    assert {"127.0.0.1"} == set(listening)


def test_a_killed_job_continues_where_it_stopped(
    job: subprocess.Popen[bytes],
    local_rows: pa.Table,
    base_path: Path,
    inputs: Path,
    metrics_port: int,
    tmp_path: Path,
) -> None:
    """A part that is lost while it runs is detected, and an actor that is killed loses no row."""
    check_progress(job, metrics_port, tmp_path)
    check_listening(job, metrics_port)
    for process in [*psutil.Process(job.pid).children(recursive=True), job]:
        process.kill()  # Ray's workers too, which would write more parts until they notice
    job.wait()
    before = parts(tmp_path)
    assert 2 <= len(before) < PARTS
    truncated = min(before)
    truncated.write_bytes(before.pop(truncated)[:-9])
    log = tmp_path / "log"
    again = start_job(base_path, inputs, tmp_path / "out", log)
    wait_until(lambda: parts(tmp_path).keys() - before.keys() or again.poll() is not None, timeout_s=300)
    assert again.poll() is None, log.read_text()
    lost = min(parts(tmp_path).keys() - before.keys())
    lost_rows = pq.read_table(lost)
    lost.unlink()
    os.kill(actors(again)[0].pid, signal.SIGKILL)
    assert len(parts(tmp_path)) < PARTS
    assert 1 == again.wait()
    last = log.read_text().splitlines()[-1]
    assert last.endswith(" and possibly other photos have no row; run the job again to classify them")
    assert before.items() <= parts(tmp_path).items()
    assert local_rows.equals(by_image(pa.concat_tables([lost_rows, pq.read_table(tmp_path / "out")])))
    assert 4 == start_job(base_path, inputs, tmp_path / "out", log).wait(), log.read_text()
    assert local_rows.equals(by_image(pq.read_table(tmp_path / "out")))
    assert f"{local_rows.num_rows} photos, 2 of them failed" == log.read_text().splitlines()[-1]


def test_relative_paths_work_on_a_cluster_started_in_another_folder(base_path: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "7.jpg").write_bytes(b"x" * 7)
    pq.write_table(pa.table({"image": ["5"], "content": [b"x" * 5]}), tmp_path / "in" / "a.parquet")
    port = free_port()
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
    options = [f"--port={port}", "--num-cpus=3", "--include-dashboard=false", "--disable-usage-stats"]
    # Listen on the loopback address only, as the job's own Ray does, and require a token.
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    settings = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    environment = {**os.environ, **settings, **token}
    cluster = subprocess.Popen([*ray, *options], cwd="/", env=environment, stdout=subprocess.PIPE)
    try:
        assert cluster.stdout is not None
        assert any(b"Ray runtime started" in line for line in cluster.stdout)
        flags = ("--model_name=sizing", f"--model_base_path={base_path}", f"--ray-address=127.0.0.1:{port}")
        command = [sys.executable, "-m", "savedmodel_bakery", "bulk", "--engine=ray", "in", *flags, "--out=rows"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    finally:
        cluster.terminate()
        cluster.communicate()
    labels = {row["image"]: row["label"] for row in pq.read_table(tmp_path / "rows").to_pylist()}
    assert {"in/7.jpg": "7", "in/a.parquet/5": "5"} == labels


def test_the_command_of_the_documentation_works(clone: Path, lite0: Path, tmp_path: Path) -> None:
    page = (clone / "docs" / "how-to" / "bulk.md").read_text()
    command = re.search(r"^\$ bakery (bulk --engine ray .*)$", page, re.MULTILINE)
    assert command is not None
    (tmp_path / "examples").symlink_to(clone / "examples")
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "efficientnet_lite0").symlink_to(lite0)
    subprocess.run(f"{sys.executable} -m savedmodel_bakery {command[1]}", shell=True, cwd=tmp_path, check=True)
    labels = {row["image"]: row["label"] for row in pq.read_table(tmp_path / "rows").to_pylist()}
    assert {"examples/chelsea.png": "tiger cat", "examples/coffee.png": "espresso"} == labels


@pytest.mark.parametrize(
    ("model", "code", "error"),
    [
        ("none", 2, "none contains no version; versions are folders named 1, 2, 3, …"),
        (
            "half_plus_two",
            1,
            'model "sizing" version 1 does not take photos: none of its signatures',
        ),
    ],
)
def test_an_unusable_model_is_reported_in_one_line(
    tmp_path: Path, inputs: Path, model: str, code: int, error: str
) -> None:
    (tmp_path / "none").mkdir()
    model_makers.half_plus(tmp_path / "half_plus_two", 1)
    assert code == start_job(tmp_path / model, inputs, tmp_path / "out", tmp_path / "log").wait()
    assert error in (tmp_path / "log").read_text().splitlines()[-1]
