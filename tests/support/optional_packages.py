"""Runs Python with the packages of optional features, which `make test-system` installs to `.cache/optional`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_python(clone: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    path = [str(clone), str(clone / ".cache" / "optional"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
