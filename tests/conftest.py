"""Fixtures and ordering for all tests."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_start
from bake_cache import bake_once

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The default on newer CPUs. Without oneDNN, TensorFlow can't compute grouped convolutions with a bias.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Shells ignore SIGINT in background jobs, and children inherit that; tests that interrupt a program need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# TensorFlow has a million objects. Looking for garbage among them after every 700 new ones takes an eighth of the time.
gc.set_threshold(50_000)

CLONE = Path(__file__).parent.parent

LONGEST_FIRST = (
    "system/test_images.py", "system/test_pages.py", "docs/test_training_pages.py", "e2e/test_int8.py",
    "system/test_bulk.py", "system/test_playground.py", "docs/test_readme.py", "exporter/test_bake.py", "e2e",
    "exporter/validation", "exporter/test", "savedmodel_bakery",
)  # fmt: skip
"""Tests that take minutes, by the first letters of their files."""


COLD = {
    "docs/test_readme.py": "the first commands of a user, without a line of TensorFlow's log",
    "savedmodel_bakery/test_packaging.py": "installed packages",
    "savedmodel_bakery/test_tensorflow_import.py": "the log of the import",
    "exporter/test_bake_killed.py": "which processes end",
    "serving/models/test_memory.py": "memory",
    "system/test_large_model.py": "memory",
    "attacks": "memory and time",
    "drills/test_limits.py": "memory",
    "benchmarks": "times",
}
"""Tests whose programs start by themselves instead of as forks (warm_start.py), with what these tests are about."""


def pytest_configure(config: pytest.Config) -> None:
    """Start the forkserver, in the process that starts the others."""
    # CUDA does not survive a fork.
    if hasattr(config, "workerinput") or Path("/proc/driver/nvidia").exists():
        return
    folder = Path(tempfile.mkdtemp(prefix="bakery-"))
    warm = Path(warm_start.__file__).parent
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(warm), os.environ.get("PYTHONPATH")]))
    os.environ[warm_start.ADDRESS] = str(folder / "socket")
    # Callers that connect before TensorFlow is imported wait.
    with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("w") as log:
        listener.bind(os.environ[warm_start.ADDRESS])
        listener.listen(64)
        forkserver = subprocess.Popen(
            [sys.executable, str(warm / "forkserver.py"), str(listener.fileno())],
            stdin=subprocess.PIPE, stdout=log, stderr=log, pass_fds=[listener.fileno()],
        )  # fmt: skip

    def end() -> None:
        has_ended = forkserver.poll() is not None
        forkserver.kill()  # kills the programs that still run
        forkserver.communicate()
        text = (folder / "log").read_text()
        shutil.rmtree(folder)
        assert not has_ended, f"the forkserver of the tests ended early:\n{text}"

    config.add_cleanup(end)


@pytest.fixture(scope="module", autouse=True)
def _start(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let programs start by themselves in the files of `COLD`."""
    place = str(request.path.relative_to(CLONE / "tests"))
    with pytest.MonkeyPatch.context() as patch:
        if any(place.startswith(cold) for cold in COLD):
            patch.delenv(warm_start.ADDRESS, raising=False)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run `LONGEST_FIRST`, so that no file runs alone at the end."""

    def rank(item: pytest.Item) -> int:
        place = item.path.relative_to(CLONE / "tests").as_posix()
        return next((rank for rank, first in enumerate(LONGEST_FIRST) if place.startswith(first)), len(LONGEST_FIRST))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Prepare this process for the tests."""
    gc.freeze()  # what all tests import
    if "tensorflow" not in sys.modules:
        return
    from tensorflow.python.eager.context import Context
    from tf1_session import build_functions_faster

    own = Context.config.fget

    def config(context: Context) -> object:
        proto = own(context)
        build_functions_faster(proto)  # for which there is no option
        return proto

    Context.config = property(config)


@pytest.fixture(scope="session")
def clone() -> Path:
    """The root of the repository."""
    return CLONE


@pytest.fixture(scope="session")
def lite0() -> Path:
    """Base path of EfficientNet-Lite0 with its real weights, version 1, baked by the command line.

    Beside it is `bake.log` with what the command wrote to stderr.
    """

    def bake(root: Path) -> None:
        command = [sys.executable, "-m", "savedmodel_bakery.exporter", "bake", "--model", "efficientnet-lite0"]
        with (root / "bake.log").open("w") as log:
            subprocess.run(
                [*command, "--out", str(root)], check=True, stdout=subprocess.DEVNULL, stderr=log, timeout=240
            )

    return bake_once("lite0", bake, Path(__file__)) / "efficientnet_lite0"


@pytest.fixture(scope="session")
def task_models() -> Path:
    """The file for `--model_config_file` with a baked model per task; `photo.png` is beside it."""
    import baked_tasks  # imports TensorFlow

    files = [Path(module.__file__) for module in (baked_tasks, baked_tasks.shape_models)]
    return bake_once("task_models", baked_tasks.bake_tasks, *files) / "models.config"


@pytest.fixture(scope="session")
def flowers(clone: Path) -> Path:
    """The folder in which `examples/train/flowers.py` has trained; `training.log`, what it printed, is beside it."""

    def train(root: Path) -> None:
        (folder := root / "files").mkdir()
        command = [sys.executable, str(clone / "examples" / "train" / "flowers.py")]
        with (root / "training.log").open("w") as log:
            subprocess.run(command, cwd=folder, check=True, stdout=log, stderr=subprocess.DEVNULL, timeout=240)

    return bake_once("flowers", train, Path(__file__)) / "files"


@pytest.fixture(scope="session")
def half_plus_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base path of a model that computes x / 2 + 2, version 1."""
    import model_makers  # imports TensorFlow

    base_path = tmp_path_factory.mktemp("half_plus_two") / "half_plus_two"
    model_makers.half_plus(base_path, 1)
    return base_path
