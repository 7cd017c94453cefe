"""Runs the command `bakery` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WITHOUT = """
import sys
for name in {modules!r}:
    sys.modules[name] = None
from savedmodel_bakery.command import main
main()
"""


def run(
    *arguments: str, without: tuple[str, ...] = (), folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `bakery` in a process in which some modules cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT.format(modules=without), *arguments],
        cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
