"""The clock jumps, and the limits of the process are reached: calls in excess get errors, and all others answers."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc_calls
import model_makers
import numpy as np
import pytest
import requests
from server_process import ServerProcess
from steady_callers import PredictCallers
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from waiting import wait_until

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
GROUPS = Path("/sys/fs/cgroup")
MEMORY_BYTES = 1_500_000_000
REQUEST_BYTES = 50_000_000
CALLERS = 32


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the offset of the clock of processes that start from now on. Their timers are not moved."""
    file = tmp_path / "clock"
    file.write_text("+0")
    for name, value in {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return file


def test_the_clock_jumps(half_plus_two: Path, clock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day ahead, two days back, and back to today."""
    flags = ("--model_name=half_plus_two", f"--model_base_path={half_plus_two}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        monkeypatch.delenv("LD_PRELOAD")

        def date() -> str:
            return requests.get(f"{server.url}/v1/models/half_plus_two", timeout=10).headers["Date"][:16]

        with PredictCallers(server) as callers:
            callers.wait_for_answers()
            for offset in ("+1d", "-1d", "+0"):
                before = date()
                clock.write_text(offset)
                wait_until(lambda before=before: before != date())
                callers.wait_for_answers()
        callers.assert_served()
        print("longest time without an answer:", dict(callers.longest_gap_s))


def test_no_file_handles_are_left(tmp_path: Path) -> None:
    """New callers wait, and a new version is not loaded; callers with an open connection notice nothing."""
    base_path = tmp_path / "halves"
    model_makers.half_plus(base_path, 1, plus=2.0)
    flags = ("--model_name=halves", f"--model_base_path={base_path}", "--file_system_poll_wait_seconds=1")
    with ServerProcess(*flags, log=tmp_path / "log") as server:

        def call() -> float:
            url = f"{server.url}/v1/models/halves:predict"
            return float(requests.post(url, json={"instances": [0]}, timeout=3).json()["predictions"][0])

        def allow_files(count: int) -> None:
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (count, hard))

        before, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        with PredictCallers(server, "halves", right=(2.0, 3.0)) as callers:
            callers.wait_for_answers()
            allow_files(0)  # open ones stay
            with pytest.raises(requests.RequestException) as raised:
                call()
            print(type(raised.value).__name__)
            model_makers.half_plus(base_path, 2, plus=3.0)
            server.wait_for_log("Too many open files")
            callers.wait_for_answers()
            allow_files(before)
            wait_until(lambda: call() == 3.0)
        callers.assert_served()
        print("longest time without an answer:", dict(callers.longest_gap_s))


@contextmanager
def limited_memory(server: ServerProcess) -> Iterator[Path | None]:
    """Limit the memory of a process by a control group of version 2 or 1, else by RLIMIT_DATA; yield the group."""
    is_unified = (GROUPS / "cgroup.controllers").exists()
    group = (GROUPS if is_unified else GROUPS / "memory") / f"bakery-drill-{server.process.pid}"
    try:
        group.mkdir()
        (group / ("memory.max" if is_unified else "memory.limit_in_bytes")).write_text(str(MEMORY_BYTES))
        (group / "cgroup.procs").write_text(str(server.process.pid))
    except OSError as error:
        print("RLIMIT_DATA, because there can be no control group:", error)
        if group.exists():
            group.rmdir()
        resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        yield None
        return
    try:
        yield group
    finally:
        server.stop()
        group.rmdir()


@pytest.mark.timeout(180)
def test_a_memory_limit_is_reached(half_plus_two: Path, tmp_path: Path) -> None:
    """Requests that need more than all memory are answered or rejected, some while they arrive; others are answered."""
    body = predict_pb2.PredictRequest()
    body.CopyFrom(grpc_calls.request(model="half_plus_two", x=np.zeros(REQUEST_BYTES // 4, np.float32)))
    flags = ("--model_name=half_plus_two", f"--model_base_path={half_plus_two}")
    with (
        ServerProcess(*flags, log=tmp_path / "log", wait=False) as server,
        limited_memory(server) as group,
        grpc.insecure_channel(server.target, options=[("grpc.max_receive_message_length", -1)]) as channel,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        server.wait_until_listening()
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

        def send(_: int) -> str:
            try:
                return "OK" if stub.Predict(body, timeout=60).outputs["y"].float_val else "wrong"
            except grpc.RpcError as error:
                return str(error.code().name)

        with PredictCallers(server) as callers:
            codes = Counter(pool.map(send, range(2 * CALLERS)))
        callers.assert_served()
        print(codes, "longest time without an answer:", dict(callers.longest_gap_s))
        if group and not (GROUPS / "cgroup.controllers").exists():
            print("at most", (group / "memory.max_usage_in_bytes").read_text(), "bytes of", MEMORY_BYTES)
        assert {"OK", "RESOURCE_EXHAUSTED"} <= set(codes) <= {"OK", "RESOURCE_EXHAUSTED", "CANCELLED"}
        assert server.process.poll() is None
