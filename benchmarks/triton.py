"""Starts the tritonserver from the wheel of pytriton, without a container."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
_PYTHON = "3.11"  # of the environment, which must use the system's Python: the stub links its library


def write_classifier(repository: Path) -> None:
    """Write the model repository of the benchmark."""
    version = repository / "classifier" / "1"
    version.mkdir(parents=True)
    shutil.copy(PEERS / "triton_model.py", version / "model.py")
    shutil.copy(PEERS / "triton.pbtxt", repository / "classifier" / "config.pbtxt")


def command(environment: Path, repository: Path, backends: Path, *, ports: tuple[int, int, int]) -> list[str]:
    """Write the backends, and return the command that serves a model repository.

    Args:
        environment: the virtual environment that has the wheel.
        repository: folder of models.
        backends: the folder to create for the backends.
        ports: loopback ports for HTTP, gRPC and metrics.
    """
    home = _site_packages(environment) / "pytriton" / "tritonserver"
    shutil.copytree(home / "backends", backends)
    shutil.copy(home / "python_backend_stubs" / _PYTHON / "triton_python_backend_stub", backends / "python")
    addresses = zip(("http", "grpc", "metrics"), ports, strict=True)
    return [
        str(home / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        *(flag for name, port in addresses for flag in (f"--{name}-address=127.0.0.1", f"--{name}-port={port}")),
        "--allow-gpu-metrics=false",
        "--exit-timeout-secs=3",
    ]


def variables(environment: Path) -> Mapping[str, str]:
    """Return its environment variables: the stub runs the first Python on the PATH and ignores PYTHONPATH."""
    libraries = _site_packages(environment) / "nvidia_pytriton.libs"
    return {
        "LD_LIBRARY_PATH": str(libraries),
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "BENCH_PEERS": str(PEERS),
    }


def _site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{_PYTHON}" / "site-packages"
