"""What several rooms' tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

CLONE = Path(__file__).parent.parent

LONGEST_FIRST = ("test_readme.py", "test_parity.py", "test_bake.py", "test_sources.py", "test_start.py")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes go first, or one of them would run at the end while all other cores wait for it."""
    places = {name: place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def clone() -> Path:
    """The root of the repository."""
    return CLONE


@pytest.fixture(scope="session")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of EfficientNet-Lite0 with its real weights, version 1, baked by the command a user types."""
    root = tmp_path_factory.mktemp("lite0")
    command = [
        sys.executable,
        "-m",
        "savedmodel_bakery.exporter",
        "bake",
        "--model",
        "efficientnet-lite0",
        "--out",
        str(root),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return root / "efficientnet_lite0"
