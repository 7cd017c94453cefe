"""Fixtures and ordering for all tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
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
    "system/test_images.py",
    "system/test_pages.py",
    "docs/test_training_pages.py",
    "e2e/test_int8.py",
    "system/test_playground.py",
    "e2e/test_boxes_and_maps.py",
    "docs/test_readme.py",
    "exporter/validation/test_parity.py",
    "exporter/test_bake.py",
    "e2e/test_sources.py",
    "serving/test_start.py",
)
"""Files of tests."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files that take minutes first, so that none of them runs alone at the end."""
    ranks = {CLONE / "tests" / name: rank for rank, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session")
def clone() -> Path:
    """The root of the repository."""
    return CLONE


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Make a folder of this name for all processes of a run; the first one that needs it makes it."""
    run = tmp_path_factory.getbasetemp()
    root = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run

    def make_once(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return make_once


@pytest.fixture(scope="session")
def lite0(make_once: Callable[..., Path]) -> Path:
    """Base path of EfficientNet-Lite0 with its real weights, version 1, baked by the command line."""

    def bake(root: Path) -> None:
        command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", "--model", "efficientnet-lite0"]
        subprocess.run([*command, "--out", str(root)], check=True, capture_output=True, timeout=240)

    return make_once("lite0", bake) / "efficientnet_lite0"


@pytest.fixture(scope="session")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that computes x / 2 + 2, version 1."""
    import model_makers  # imports TensorFlow

    base_path = tmp_path_factory.mktemp("half_plus_two") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    return base_path
