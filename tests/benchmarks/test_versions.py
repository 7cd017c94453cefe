"""`python -m benchmarks.versions` compares versions; the figures themselves are not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.versions import table


@pytest.mark.slow
def test_versions_take_turns(clone: Path, lite0: Path) -> None:
    versions = [f"{name}={lite0 / '1'}" for name in ("one", "two")]
    command = [sys.executable, "-m", "benchmarks.versions", *versions, "--rounds", "1", "--calls", "1"]
    ended = subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True, timeout=200)
    rows = [line.strip("| ").split(" | ") for line in ended.stdout.splitlines()[5:]]
    assert ["one", "two"] == [row[0] for row in rows]
    assert all(float(cell.split()[0]) > 0 for row in rows for cell in row[1:])


def test_a_folder_without_a_version_is_rejected(clone: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.versions", f"one={tmp_path}"]
    ended = subprocess.run(command, cwd=clone, check=False, capture_output=True, text=True, timeout=100)
    assert 2 == ended.returncode
    assert "must be NAME=FOLDER, where FOLDER is a version" in ended.stderr


def test_tables_have_medians_spreads_and_ratios_of_rounds() -> None:
    plain = [{"round": n, "top_k": top_k, "pixels": 4.0, "memory": 300.0} for n, top_k in enumerate((10.0, 8.0, 30.0))]
    faster = [{"round": n, "top_k": top_k, "pixels": 3.0, "memory": 200.4} for n, top_k in enumerate((5.0, 4.0, 6.0))]
    assert [
        "| plain | 10.0 (8.0–30.0) | 1.00 | 4.0 (4.0–4.0) | 1.00 | 300 |",
        "| faster | 5.0 (4.0–6.0) | 0.50 | 3.0 (3.0–3.0) | 0.75 | 200 |",
    ] == table({"plain": plain, "faster": faster}).splitlines()[2:]
