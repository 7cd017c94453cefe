"""docs/explanation/sizing.md has the measurements of docs/explanation/speed.md, and computes with them as it says."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

USED = 0.7
CPUS = 2


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def measured(speed: str) -> set[tuple[str, ...]]:
    """Return the rows of `ours-fast`: network, photo, callers, images/s, p99 ms, CPU ms per image, peak MB."""
    rows = set()
    network = photo = callers = ""
    for line in speed.splitlines():
        if match := re.match(r"## (\S+)$", line):
            network = match[1]
        elif match := re.match(r"### JPEG of (\S+)$", line):
            photo = match[1]
        elif match := re.match(r"\| (\d+) callers? \|", line):
            callers = match[1]
        elif line.startswith("| ours-fast |"):
            _, rate, _, _, p99, cpu, _, memory = cells(line)
            rows.add((network, photo, callers, rate.split()[0], p99, cpu.split()[0], memory))
    return rows


@pytest.fixture(scope="module")
def page(clone: Path) -> str:
    return (clone / "docs" / "explanation" / "sizing.md").read_text()


@pytest.fixture(scope="module")
def rows(clone: Path) -> set[tuple[str, ...]]:
    return measured((clone / "docs" / "explanation" / "speed.md").read_text())


def test_the_page_has_the_measured_rows(page: str, rows: set[tuple[str, ...]]) -> None:
    shown = {tuple(cells(line)) for line in page.splitlines() if re.match(r"\| \S+ \| \d+×\d+ \|", line)}
    assert len(rows) >= 12
    assert rows == shown


def test_replicas_follow_from_the_rows(page: str, rows: set[tuple[str, ...]]) -> None:
    examples = [cells(line) for line in page.splitlines() if re.match(r"\| \S+, \d+×\d+ \|", line)]
    assert len(examples) >= 5
    for model, within, capacity, replicas, cpus in examples:
        network, photo = model.split(", ")
        limit = float(within.removesuffix(" ms"))
        best = max(float(row[3]) for row in rows if row[:2] == (network, photo) and float(row[4]) <= limit)
        needed = math.ceil(1000 / (best * USED)) + 1
        assert (best, needed, needed * CPUS) == (float(capacity), int(replicas), int(cpus)), model
