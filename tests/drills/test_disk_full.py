"""The disk is full: the command ends with one line, what was published stays, and the same command later completes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_models
from bulk_files import read_image_labels, write_photos
from model_servers import version_states
from server_process import ServerProcess
from steady_callers import SteadyCallers
from waiting import wait_until

DISK_BYTES = 12_000_000
PHOTOS = 300
FULL = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(disk: Path, *, leave_bytes: int) -> Path:
    """Fill a file system up to some bytes, and return the file that does."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    statistics = os.statvfs(disk)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, statistics.f_bavail * statistics.f_frsize - leave_bytes)
    return filler


def is_served(server: ServerProcess, version: int) -> bool:
    """Return whether a version, and no failed one, is in the status of the model `tiny`."""
    states = version_states(server, "tiny")
    return states.get(version) == ("AVAILABLE", "OK") and {"OK"} == {code for _, code in states.values()}


def test_during_a_bake(workshop: Path, disk: Path, tmp_path: Path) -> None:
    """Callers of version 1 notice nothing, and the same command publishes version 2 when there is space."""
    base_path = disk / "tiny"
    shutil.copytree(workshop / "baked" / "tiny" / "1", base_path / "1")
    version_bytes = sum(path.stat().st_size for path in base_path.rglob("*") if path.is_file())
    before = tiny_models.files(base_path)
    flags = ("--model_name=tiny", f"--model_base_path={base_path}")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        with SteadyCallers({"status": lambda: is_served(server, 1)}) as callers:
            for share in (0.02, 0.3, 0.9):
                filler = fill(disk, leave_bytes=int(share * version_bytes))
                started_s = time.monotonic()
                run = tiny_models.run(workshop, *tiny_models.bake_arguments(disk))
                check_error(run.code, run.stderr)
                print(f"with space for {share:.0%} of a version: after {time.monotonic() - started_s:.1f} s")
                assert before == tiny_models.files(base_path)
        callers.assert_served()
        filler.unlink()
        run = tiny_models.run(workshop, *tiny_models.bake_arguments(disk))
        assert (0, f"{base_path}/2\n") == (run.code, run.stdout), run.stderr
        wait_until(lambda: is_served(server, 2))


def check_error(code: int, stderr: str) -> None:
    """Check that a command has ended with one line that names the full disk."""
    last = stderr.splitlines()[-1]
    print(last)
    assert (1, "error: cannot write", True) == (code, last[:19], FULL in last), stderr
    assert "Traceback" not in stderr


def bulk(port: int, photos: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run a bulk job until its end."""
    command = [sys.executable, "-m", "savedmodel_bakery", "bulk", str(photos), "-m", "sizing", "--port", str(port)]
    return subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.parquet"])
def test_during_a_bulk_job(sizing_server: ServerProcess, disk: Path, tmp_path: Path, name: str) -> None:
    """While it writes rows, and while it writes the result from them. No photo is lost, and none has two rows."""
    contents = {f"p{size}": b"x" * size for size in range(1, PHOTOS + 1)}
    photos = write_photos(tmp_path / "photos", **contents)
    out = disk / name
    spaces = [16 << 10] if out.suffix == ".jsonl" else [16 << 10, (PHOTOS * 190) + 8192]
    for leave_bytes in spaces:
        filler = fill(disk, leave_bytes=leave_bytes)
        done = bulk(sizing_server.port, photos, out)
        check_error(done.returncode, done.stderr)
    filler.unlink()
    done = bulk(sizing_server.port, photos, out)
    assert 0 == done.returncode, done.stderr
    assert sorted((f"{photos}/{key}.jpg", str(len(content))) for key, content in contents.items()) == sorted(
        read_image_labels(str(out))
    )
    assert {name} == {path.name for path in disk.iterdir()}
