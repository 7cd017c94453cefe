"""Failure drills: something breaks while callers call. `make test-system` runs them, bounded in time and memory.

docs/explanation/reliability.md has their results. `python -m pytest -m system -rP tests/drills` prints the figures.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models
from server_process import ServerProcess


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.system)


@pytest.fixture
def moments() -> random.Random:
    """The source of random moments and places; its seed is printed, and can be set to repeat a drill."""
    seed = int(os.environ.get("BAKERY_DRILL_SEED", random.SystemRandom().randrange(2**32)))
    print(f"BAKERY_DRILL_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module of a model that bakes in seconds, and with its version 1 in `baked/tiny`."""
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    run = tiny_models.run(folder, *tiny_models.bake_arguments("baked"), root="baked")
    assert 0 == run.code, run.stderr
    return folder


@pytest.fixture(scope="session")
def sizing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of a model whose label is the number of bytes of the image, and whose runs take some milliseconds."""
    import model_makers  # imports TensorFlow

    base_path = tmp_path_factory.mktemp("sizing") / "sizing"
    model_makers.sizing(base_path, steps=500)
    flags = ("--model_name=sizing", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=base_path.with_name("log")) as running:
        yield running
