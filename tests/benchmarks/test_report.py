"""Results become Markdown tables, a plot, and parts of the documentation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import overload_report, publish, report


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
        "against": {"baseline": "baseline", "ours": "baseline", "triton": "baseline"},
        "rounds": 3,
        "seconds": 6.0,
        "sizes": {"small": [640, 427]},
        "candidates": {"baseline": "an export", "ours": "ours"},
        "skipped": {"triton": "no Triton"},
        "agreement": {"baseline": None, "ours": 0.98},
        "rows": rows,
    }


def test_tables_have_medians_spreads_and_ratios_of_rounds(document: dict[str, Any]) -> None:
    assert [
        "| baseline | 10.0 (8.0–30.0) | 1.00 | 10.0 | 250 | 40.0 (40.0–40.0) | 1.00 |  | 300 |",
        "| ours | 20.0 (16.0–60.0) | 2.00 | 10.0 | 250 | 20.0 (20.0–20.0) | 0.50 | 0.980 | 300 |",
    ] == report.table(document, photo="small", callers=8).splitlines()[2:]


def test_a_candidate_on_another_server_is_compared_with_the_baseline_there(document: dict[str, Any]) -> None:
    for name, images_per_s in (("tfs-baseline", 40.0), ("tfs-ours", 10.0)):
        document["candidates"][name] = name
        document["against"][name] = "tfs-baseline"
        document["rows"] += [row(name, number, images_per_s) for number in range(3)]
    lines = report.table(document, photo="small", callers=8).splitlines()
    assert ["1.00", "2.00", "1.00", "0.25"] == [line.split(" | ")[2] for line in lines[2:]]
    assert "ratios are to `baseline` or `tfs-baseline`, the one on the same server;" in report.markdown(document)


@pytest.fixture
def overload() -> dict[str, Any]:
    """Two rounds over gRPC: 10 and 20 photos/s in a closed loop, and 9 and 19 of the 40 and 80 offered."""
    rows = []
    for number, capacity in enumerate((10.0, 20.0)):
        for load, offered, in_time in ((None, capacity, capacity), (4, 4 * capacity, capacity - 1)):
            probes = {f"{transport} {call}": 10.0 for transport in ("gRPC", "REST") for call in ("health", "metadata")}
            key = {"transport": "gRPC", "round": number, "load": load}
            speeds = {"offered_per_s": offered, "in_time_per_s": in_time, "rejected_per_s": offered - in_time}
            memory = {"before_mb": 700.0 + number, "peak_mb": 900.0 + number, "after_mb": 800.0 + number}
            latencies = {"too_late_per_s": 0.0, "p50_ms": 100.0, "p99_ms": 1900.0}
            rows.append({**key, **speeds, **latencies, **memory, "probes_p99_ms": probes, "probes_failed": number})
    return {
        "kind": "overload",
        "machine": {"CPU": "a CPU, 2 cores"},
        "rounds": 2,
        "seconds": 15.0,
        "size": [4000, 3000],
        "bytes": 1_300_000,
        "deadline_s": 2.0,
        "server_cpus": 1,
        "rows": rows,
    }


def test_overload_is_compared_with_the_peak_of_its_round(overload: dict[str, Any]) -> None:
    closed, open_loop = overload_report.table(overload["rows"], "gRPC").splitlines()[2:]
    assert "15.0 | 15.0 | 1.00 (1.00–1.00) | 0.0 | 0.0 | 100 | 1900 | 10, 10 | 10, 10 | 1 | 700, 901, 801 |" in closed
    assert "| 4 times that | 60.0 | 14.0 | 0.93 (0.90–0.95) | 46.0 | 0.0 | 100 | 1900 |" in open_loop


def test_results_go_into_the_page_between_their_marks(
    document: dict[str, Any], overload: dict[str, Any], clone: Path, tmp_path: Path
) -> None:
    page, plot = Path("docs", "explanation", "speed.md"), Path("docs", "images", "speed.svg")
    for path in (page, plot):
        (tmp_path / path).parent.mkdir(parents=True)
    committed = (clone / page).read_text()
    (tmp_path / page).write_text(committed)
    files = [tmp_path / "comparison.json", tmp_path / "overload.json"]
    for file, results in zip(files, (document, overload), strict=True):
        file.write_text(json.dumps(results))
    command = [sys.executable, "-m", "benchmarks.publish", *map(str, files), "--clone", str(tmp_path)]
    for _ in range(2):  # the second run replaces the results of the first
        subprocess.run(command, cwd=clone, check=True, capture_output=True, timeout=200)
    written = (tmp_path / page).read_text()
    marks = r"(.*<!-- benchmark -->)(.*)(<!-- /benchmark -->.*<!-- overload -->)(.*)(<!-- /overload -->.*)"
    before, shown, between, shown_overload, after = re.fullmatch(marks, written, re.DOTALL).groups()
    kept = re.fullmatch(marks, committed, re.DOTALL)
    assert [before, between, after] == [kept[1], kept[3], kept[5]]
    assert overload_report.markdown(overload) in shown_overload
    assert "a CPU, 2 cores, TensorFlow 2.21.0. Interleaved rounds (3 of 6 s), medians" in shown
    assert report.table(document, photo="small", callers=8) in shown
    assert "- `triton` was skipped: no Triton" in shown
    assert "<svg" in (tmp_path / plot).read_text()


def test_a_page_without_marks_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs the marks <!-- benchmark -->"):
        publish.replace_between_marks("no marks\n", "benchmark", "content")
