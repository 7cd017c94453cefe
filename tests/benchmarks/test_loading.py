"""`python -m benchmarks.loading` compares how versions load; the figures themselves are not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.loading import table


@pytest.mark.slow
def test_versions_are_loaded(clone: Path, lite0: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.loading", f"one={lite0 / '1'}", "--rounds", "1"]
    ended = subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True, timeout=200)
    (row,) = (line.strip("| ").split(" | ") for line in ended.stdout.splitlines()[5:])
    assert "one" == row[0]
    assert all(float(cell.split()[0]) > 0 for cell in row[1:])


def test_tables_have_medians_spreads_and_ratios_of_rounds() -> None:
    before = [{"round": n, "load": 1.0, "warm_up": 2 + n, "available": 3 + n} for n in range(3)]
    after = [{"round": n, "load": 0.5, "warm_up": 1.0, "available": 1.5} for n in range(3)]
    rows = {"before": before, "after": after}
    for row in (*before, *after):
        row.update(memory=900.4, first=1.25)
    assert [
        "| before | 1.00 | 3.00 | 4.00 (3.00–5.00) | 1.00 | 900 | 1.25 |",
        "| after | 0.50 | 1.00 | 1.50 (1.50–1.50) | 0.38 | 900 | 1.25 |",
    ] == table(rows).splitlines()[2:]
