"""Fixtures and ordering for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The default on newer CPUs. Without oneDNN, TensorFlow can't compute grouped convolutions with a bias.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Shells ignore SIGINT in background jobs, and children inherit that; tests that interrupt a program need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

CLONE = Path(__file__).parent.parent

LONGEST_FIRST = (
    "test_readme.py",
    "test_parity.py",
    "test_bake.py",
    "test_sources.py",
    "test_start.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that take minutes first, so that none of them runs alone at the end."""
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.fixture(scope="session")
def clone() -> Path:
    """The root of the repository."""
    return CLONE


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of EfficientNet-Lite0 with its real weights, version 1, baked by the command line.

    The first process of a run that needs it bakes it for all.
    """
    run = tmp_path_factory.getbasetemp()
    root = (run.parent if "PYTEST_XDIST_WORKER" in os.environ else run) / "lite0"
    base_path = root / "efficientnet_lite0"
    with FileLock(root.with_suffix(".lock")):
        if not base_path.is_dir():
            command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", "--model", "efficientnet-lite0"]
            subprocess.run([*command, "--out", str(root)], check=True, capture_output=True, timeout=240)
    return base_path


@pytest.fixture(scope="session")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that computes x / 2 + 2, version 1."""
    import model_makers  # imports TensorFlow

    base_path = tmp_path_factory.mktemp("half_plus_two") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    return base_path
