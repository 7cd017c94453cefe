"""Calls get half of the threads that each limit of the system leaves, and less if their stacks take too much memory."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from savedmodel_bakery.serving import process

MIB = 2**20


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system without limits but 10,000 threads, of which 1000 run: 20 of this user, in two processes."""
    proc = tmp_path / "proc"
    user = 1000
    monkeypatch.setattr(os, "getuid", lambda: user)
    for path, text in {
        "proc/sys/kernel/threads-max": "10000\n",
        "proc/sys/kernel/pid_max": "32768\n",
        "proc/loadavg": "0.01 0.02 0.03 2/1000 77\n",
        "proc/1/status": f"Name:\ta\nUid:\t{user}\t0\t0\t0\nThreads:\t15\n",
        "proc/22/status": f"Name:\tb\nUid:\t{user}\t0\t0\t0\nThreads:\t5\n",
        "proc/333/status": f"Name:\tc\nUid:\t{user + 1}\t0\t0\t0\nThreads:\t100\n",
        "groups": "5:cpu:/\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(process, "_PROC", proc)
    monkeypatch.setattr(process, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(process, "_MOUNT", tmp_path / "mount")
    monkeypatch.setattr(process, "data_bytes", lambda: 200 * MIB)
    limit_process(monkeypatch)
    return tmp_path


def limit_process(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    def getrlimit(number: int) -> tuple[int, int]:
        names = {resource.RLIMIT_NPROC: "threads", resource.RLIMIT_DATA: "data", resource.RLIMIT_STACK: "stack"}
        return limits.get(names[number], resource.RLIM_INFINITY), resource.RLIM_INFINITY

    monkeypatch.setattr(resource, "getrlimit", getrlimit)


def test_the_limit_of_the_system() -> None:
    assert 4500 == process.count_call_threads()


def test_the_limit_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_process(monkeypatch, threads=2020)
    assert 1000 == process.count_call_threads()
    monkeypatch.setattr(os, "getuid", lambda: 0)  # for root there is none
    assert 4500 == process.count_call_threads()


def test_names_of_processes_may_be_any_bytes(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_process(monkeypatch, threads=2020)
    status = system / "proc/22/status"
    status.write_bytes(status.read_bytes().replace(b"\tb", b"\tb\xc3"))
    assert 1000 == process.count_call_threads()


def test_a_system_that_states_no_limit(system: Path) -> None:
    for name in ("threads-max", "pid_max"):
        (system / "proc/sys/kernel" / name).unlink()
    assert 10_000 < process.count_call_threads()


@pytest.mark.parametrize(
    ("line", "folder"), [("0::/pod/server", ""), ("9:cpu,pids:/pod/server", "pids")], ids=["version 2", "version 1"]
)
def test_the_limits_of_the_control_group_and_of_those_above_it(system: Path, line: str, folder: str) -> None:
    (system / "groups").write_text(f"{line}\n")
    root = system / "mount" / folder
    for name, limit, current in (("pod/server", "max", 30), ("pod", "1100", 100)):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "pids.max").write_text(f"{limit}\n")
        (root / name / "pids.current").write_text(f"{current}\n")
    assert 500 == process.count_call_threads()


@pytest.mark.parametrize(("stack", "threads"), [({}, 25), ({"stack": 2 * MIB}, 100)], ids=["default", "2 MiB"])
def test_stacks_take_a_quarter_of_the_data_that_is_left(
    monkeypatch: pytest.MonkeyPatch, stack: dict[str, int], threads: int
) -> None:
    limit_process(monkeypatch, data=1000 * MIB, **stack)
    assert threads == process.count_call_threads()


def test_there_is_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_process(monkeypatch, threads=10)
    assert 1 == process.count_call_threads()
