"""Describes the machine that a benchmark runs on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import date
from importlib.metadata import version
from pathlib import Path

import psutil


def describe() -> dict[str, str]:
    """Return the hardware, the relevant software versions, the date and the current load, by name."""
    cores = len(os.sched_getaffinity(0))
    gpu = query_gpu("name")
    return {
        "CPU": f"{_cpu_model()}, {cores} cores",
        **({"GPU": gpu} if gpu else {}),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "TensorFlow": version("tensorflow"),
        "date": date.today().isoformat(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def query_gpu(field: str) -> str | None:
    """Return what nvidia-smi says of the first GPU, such as `name` or `memory.used` in MiB; None without a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--id=0", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    query = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if query.returncode else query.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
