"""Servers run on the CPUs they are given, and end with all their processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from benchmarks.overload import divide
from benchmarks.processes import Server, free_port, on_cpus


def test_processes_started_by_a_server_end_with_it(tmp_path: Path) -> None:
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '100']).pid, flush=True); time.sleep(100)"
    with Server([sys.executable, "-c", program], port=free_port(), log=tmp_path / "log"):
        wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
        child = psutil.Process(int((tmp_path / "log").read_text()))
        assert "sleep" == child.name()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_server_started_on_some_cpus_stays_on_them(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    cpu = max(before)
    program = "import time; print(flush=True); time.sleep(100)"
    with on_cpus({cpu}):
        server = Server([sys.executable, "-c", program], port=free_port(), log=tmp_path / "log")
    with server:
        assert ({cpu}, before) == (os.sched_getaffinity(server.pid), os.sched_getaffinity(0))


@pytest.mark.parametrize(("cpus", "server", "others"), [({3}, {3}, {3}), ({0, 5}, {5}, {0}), ({0, 1, 2}, {1, 2}, {0})])
def test_the_server_under_overload_has_half_of_the_cpus(cpus: set[int], server: set[int], others: set[int]) -> None:
    assert (server, others) == divide(cpus)
