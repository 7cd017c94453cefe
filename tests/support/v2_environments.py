"""The environments with other clients and servers of the v2 protocol, which `make test-system` makes in .cache/v2."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[2] / ".cache" / "v2"

CLIENTS = "clients"
"""Has tritonclient and kserve. Import only one of them in a process: both define the messages of the protocol."""

MLSERVER = "mlserver"
"""Has MLServer."""


def program(environment: str, name: str = "python") -> Path:
    """Return the path of a program of an environment."""
    path = ENVIRONMENTS / environment / "bin" / name
    assert path.exists(), f"{path} does not exist: run `make .cache/v2/{environment}/.installed`"
    return path


def variables() -> dict[str, str]:
    """Return the environment variables for its programs, which must not import this project."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run_script(environment: str, script: str, *arguments: str, timeout_s: float = 120) -> str:
    """Run Python code in an environment and return what it prints; fail with its errors if it fails."""
    command = [str(program(environment)), "-c", script, *arguments]
    done = subprocess.run(command, env=variables(), capture_output=True, text=True, timeout=timeout_s, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout
