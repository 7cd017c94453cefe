"""Servers end with all their processes."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
from waiting import wait_until

from benchmarks.processes import Server, free_port


def test_processes_started_by_a_server_end_with_it(tmp_path: Path) -> None:
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '100']).pid, flush=True); time.sleep(100)"
    with Server([sys.executable, "-c", program], port=free_port(), log=tmp_path / "log"):
        wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
        child = psutil.Process(int((tmp_path / "log").read_text()))
        assert "sleep" == child.name()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
