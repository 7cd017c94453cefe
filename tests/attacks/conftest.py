"""Attacks on a live server on loopback, each bounded in count, time and memory: `make test-system` runs them.

Each test says what is sent and what is allowed. The server has a memory limit, so that one that fails ends instead of
taking the machine with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attacked_server import CLASSIFIER, METRICS_PATH, TINY, AttackedServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder, except those that `make test-slow` runs."""
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.system)


@pytest.fixture(scope="module")
def server(half_plus_two: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    """A server with half_plus_two and metrics."""
    folder = tmp_path_factory.mktemp("attacked")
    monitoring = folder / "monitoring.config"
    monitoring.write_text(f'prometheus_config {{ enable: true path: "{METRICS_PATH}" }}')
    with AttackedServer({TINY: half_plus_two}, f"--monitoring_config_file={monitoring}", log=folder / "log") as running:
        yield running


@pytest.fixture(scope="module")
def classifier(half_plus_two: Path, lite0: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedServer]:
    """A server with half_plus_two and EfficientNet-Lite0."""
    base_paths = {TINY: half_plus_two, CLASSIFIER: lite0}
    with AttackedServer(base_paths, log=tmp_path_factory.mktemp("attacked") / "log") as running:
        yield running
