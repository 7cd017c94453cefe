"""Describes the machine that a benchmark runs on."""

from __future__ import annotations

import os
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

import psutil


def describe() -> dict[str, str]:
    """Return the hardware, the relevant software versions, the date and the current load, by name."""
    cores = len(os.sched_getaffinity(0))
    return {
        "CPU": f"{_cpu_model()}, {cores} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "TensorFlow": version("tensorflow"),
        "date": date.today().isoformat(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
