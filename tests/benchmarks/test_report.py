"""Results become Markdown tables, a plot, and parts of the documentation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import publish, report


def row(candidate: str, number: int, images_per_s: float, **values: Any) -> dict[str, Any]:
    columns = {"p50_ms": 10.0, "p99_ms": 250.4, "cpu_ms": 20.0, "peak_mb": 300.0 + number}
    key = {"candidate": candidate, "photo": "small", "callers": 8, "round": number}
    return {**key, **columns, "images_per_s": images_per_s, **values}


@pytest.fixture
def document() -> dict[str, Any]:
    """Three rounds of two candidates; ours is twice as fast in each round and uses half the CPU."""
    rows = [row("baseline", number, speed, cpu_ms=40.0) for number, speed in enumerate((10.0, 8.0, 30.0))]
    rows += [row("ours", number, speed) for number, speed in enumerate((20.0, 16.0, 60.0))]
    return {
        "network": "a-network",
        "machine": {"CPU": "a CPU, 2 cores", "TensorFlow": "2.21.0"},
        "against": "baseline",
        "rounds": 3,
        "seconds": 6.0,
        "sizes": {"small": [640, 427]},
        "candidates": {"baseline": "an export", "ours": "ours"},
        "skipped": {"triton": "no Triton"},
        "rows": rows,
    }


def test_tables_have_medians_spreads_and_ratios_of_rounds(document: dict[str, Any]) -> None:
    assert [
        "| baseline | 10.0 (8.0–30.0) | 1.00 | 10.0 | 250 | 40.0 (40.0–40.0) | 1.00 | 300 |",
        "| ours | 20.0 (16.0–60.0) | 2.00 | 10.0 | 250 | 20.0 (20.0–20.0) | 0.50 | 300 |",
    ] == report.table(document, photo="small", callers=8).splitlines()[2:]


def test_results_go_into_the_page_between_its_marks(document: dict[str, Any], clone: Path, tmp_path: Path) -> None:
    page, plot = Path("docs", "explanation", "speed.md"), Path("docs", "images", "speed.svg")
    for path in (page, plot):
        (tmp_path / path).parent.mkdir(parents=True)
    committed = (clone / page).read_text()
    (tmp_path / page).write_text(committed)
    results = tmp_path / "results.json"
    results.write_text(json.dumps(document))
    command = [sys.executable, "-m", "benchmarks.publish", str(results), "--clone", str(tmp_path)]
    for _ in range(2):  # the second run replaces the results of the first
        subprocess.run(command, cwd=clone, check=True, capture_output=True, timeout=200)
    written = (tmp_path / page).read_text()
    before, _, rest = written.partition(publish.BEGIN)
    shown, _, after = rest.partition(publish.END)
    assert committed.partition(publish.BEGIN)[0] == before
    assert committed.partition(publish.END)[2] == after
    assert "a CPU, 2 cores, TensorFlow 2.21.0. Interleaved rounds (3 of 6 s), medians" in shown
    assert report.table(document, photo="small", callers=8) in shown
    assert "- `triton` was skipped: no Triton" in shown
    assert "<svg" in (tmp_path / plot).read_text()


def test_a_page_without_marks_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs the marks <!-- benchmark -->"):
        publish.replace_between_marks("no marks\n", "content")
