"""Servers end with all their processes."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.processes import Server, free_port


def test_processes_started_by_a_server_end_with_it(tmp_path: Path) -> None:
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '100']).pid, flush=True); time.sleep(100)"
    with Server([sys.executable, "-c", program], port=free_port(), log=tmp_path / "log"):
        while not (pid := (tmp_path / "log").read_text().strip()):
            pass
        child = psutil.Process(int(pid))
        assert "sleep" == child.name()
    with suppress(psutil.NoSuchProcess):
        while child.status() != psutil.STATUS_ZOMBIE:  # the test's timeout ends a wait in vain
            time.sleep(0.01)
