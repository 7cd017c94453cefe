"""Baking: what remains after the process is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tiny_models
from tiny_models import TIMEOUT_S
from waiting import wait_until

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.storage.folders import next_version


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    return folder


@contextlib.contextmanager
def baking(workshop: Path, root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A bake in a process group of its own, which is killed at the end. It heeds SIGHUP, also if the tests do not."""
    command = ["env", "--default-signal=HUP", *tiny_models.command(*tiny_models.bake_arguments(root))]
    process = subprocess.Popen(command, cwd=workshop, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def wait_for(process: subprocess.Popen[bytes], base_path: Path, pattern: str) -> None:
    """Wait until a path appears while the bake is running."""

    def has_appeared() -> bool:
        assert process.poll() is None
        return any(base_path.glob(pattern))

    wait_until(has_appeared, timeout_s=TIMEOUT_S, interval_s=0.001)


def test_a_kill_leaves_nothing_that_a_server_would_load(workshop: Path, tmp_path: Path) -> None:
    """When the version is written, and its validation begins; tests/drills/test_kills.py kills at random moments."""
    base_path = tmp_path / "tiny"
    with baking(workshop, tmp_path) as process:
        wait_for(process, base_path, f".staging-*/version/{publish.RECIPE_FILE}")
        process.kill()
        assert -signal.SIGKILL == process.wait(10)
    assert [] == [path.name for path in base_path.iterdir() if path.name.isdecimal()]
    assert [".staging-"] == [path.name[:9] for path in base_path.iterdir()]
    assert 1 == next_version(base_path)


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_stopped_bake_leaves_no_files_and_no_process(
    workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: signal.Signals, code: int
) -> None:
    """Schedulers stop a job with SIGTERM, users with Ctrl-C."""
    root, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with baking(workshop, root) as process:
        wait_for(process, root / "tiny", ".staging-*")
        (verifying,) = psutil.Process(process.pid).children()
        process.send_signal(stop)
        assert code == process.wait(60)
        # An orphan may not have been waited for.
        wait_until(lambda: not verifying.is_running() or verifying.status() == psutil.STATUS_ZOMBIE)
    assert [] == list(temporary.iterdir())
    assert not root.exists()
