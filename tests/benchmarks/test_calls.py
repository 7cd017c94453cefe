"""`python -m benchmarks.calls` measures each workload; the figures themselves are not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import calls
from benchmarks.calls import WORKLOADS, Row, run_starts, table
from benchmarks.workloads import ModelServer, Settings


def run(clone: Path, *arguments: str) -> list[list[str]]:
    """Return the cells of the table, without its head."""
    command = [sys.executable, "-m", "benchmarks.calls", *arguments, "--rounds", "1"]
    ended = subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True, timeout=500)
    _, _, *lines = ended.stdout.strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.slow
def test_tiny_requests_take_turns_with_another_checkout_over_both_transports(clone: Path) -> None:
    rows = run(clone, "tiny", "--calls", "32", "--server", f"other={clone}")
    assert ["gRPC other", "gRPC embedded", "REST other", "REST embedded"] == [row[0] for row in rows]
    assert ["", "", "", ""] == [row[2] for row in rows[::2]] + [row[5] for row in rows[::2]]
    assert all(float(row[column].split()[0]) > 0 for row in rows[1::2] for column in (1, 2, 3, 4, 5))


@pytest.mark.slow
def test_arrays_are_measured_beside_an_echo(clone: Path) -> None:
    rows = run(clone, "arrays", "--megabytes", "2")
    assert ["2 MiB, bare echo", "2 MiB, embedded"] == [row[0] for row in rows]
    assert all(float(row[1]) > 0 for row in rows)


@pytest.mark.slow
def test_pipelines_are_measured_beside_their_steps_and_triton(clone: Path) -> None:
    rows = run(clone, "pipelines", "--calls", "1")
    ways = ("one graph", "separate calls", "Triton ensemble")
    names = ("add_sub_mul", "shape_colours", "two_classifiers")
    assert [f"{name}, {way}" for name in names for way in ways] == [row[0] for row in rows]
    assert all(float(row[1]) > 0 for row in rows)


def test_tables_have_medians_and_ratios_of_rounds() -> None:
    old = [Row(10, 20, 100, 5), Row(8, 20, 100, 5), Row(30, 90, 100, 5)]
    new = [Row(20, 40, 50, 5), Row(12, 20, 100, 10), Row(60, 80, 200, 20)]
    assert [
        "| gRPC old | 10.00 |  | 20.00 | 100 |  | 5.00 |  |",
        "| gRPC new | 20.00 | 2.000 (1.500–2.000) | 40.00 | 100 | 1.000 (0.500–2.000) | 10.00 | 2.000 (1.000–4.000) |",
    ] == table("tiny", 16, {"gRPC": {"old": old, "new": new}}).splitlines()[2:]


def test_rows_of_several_starts_are_joined_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """So each ratio is one of the same start."""
    starts = iter([1.0, 2.0, 3.0])

    def start(*_: object) -> dict[str, dict[str, list[Row]]]:
        p50_ms = next(starts)
        return {"gRPC": {name: [Row(p50_ms * factor, 1, 1, 1)] for name, factor in (("old", 1), ("new", 10))}}

    monkeypatch.setattr(calls, "run", start)
    rows = run_starts(WORKLOADS["tiny"], Settings([], "small", 1), starts=3, rounds=1, calls=1)["gRPC"]
    assert {"old": [1.0, 2.0, 3.0], "new": [10.0, 20.0, 30.0]} == {
        name: [row.p50_ms for row in mine] for name, mine in rows.items()
    }


def test_servers_are_checkouts_or_programs(clone: Path, tmp_path: Path) -> None:
    assert clone == ModelServer.parse(f"old={clone}").checkout
    assert ("/bin/sh", "--grpc_max_threads=64") == ModelServer.parse("real=/bin/sh").command
    for text in ("no name", f"={clone}", f"empty={tmp_path}", "missing=no-such-program"):
        with pytest.raises(ValueError, match="must be NAME=DIR, a checkout, or NAME=PROGRAM"):
            ModelServer.parse(text)
