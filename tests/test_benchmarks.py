"""What `make bench` runs, runs; what it measures is not tested."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import model_makers
import psutil
import pytest

from benchmarks import candidates as contestants
from benchmarks import publish, report, threads
from benchmarks.candidates import CONTESTANTS, Contestant, LeftOut, Workshop, start
from benchmarks.processes import Server, Tree, free_port
from savedmodel_bakery.serving.options import flags


def run(clone: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, cwd=clone, check=True, capture_output=True, text=True, timeout=200
    ).stdout.splitlines()


def test_tiny_requests_are_measured_over_both_transports(clone: Path) -> None:
    head, *rows = run(clone, "benchmarks.tiny", "--calls", "100", "--rounds", "1")
    assert ["p50", "ms", "p99", "ms", "calls/s", "at", "16", "CPU", "ms/call"] == head.split()
    assert [["embedded", "gRPC"], ["embedded", "REST"]] == [row.split()[:2] for row in rows[:2]]
    assert all(float(figure) > 0 for row in rows[:2] for figure in row.split()[2:5])


def test_arrays_are_measured_in_every_spelling(clone: Path) -> None:
    head, *rows = run(clone, "benchmarks.arrays", "--megabytes", "1", "--rounds", "1")
    assert "1 MB of float64 MB sent write CPU ms read CPU ms CPU" == " ".join(head.split())
    sizes = {row[:32].strip(): float(row[32:41]) for row in rows}
    assert ["raw bytes", "base64", "JSON numbers"] == list(sizes)
    assert 1.0 == sizes["raw bytes"] < sizes["base64"] < sizes["JSON numbers"]


def test_large_arrays_are_measured_beside_an_echo(clone: Path) -> None:
    head, *rows = run(clone, "benchmarks.large", "--megabytes", "2", "--rounds", "1")
    assert "2 MiB there and back s GB/s speed client MB server MB at start" == " ".join(head.split())
    assert ["bare echo", "embedded server"] == [row[:32].strip() for row in rows]
    assert 1.0 == float(rows[0].split()[4])
    assert all(float(figure) > 0 for row in rows for figure in row[32:].split())


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """One in which every servable is a tiny one, and no environment has been made."""
    monkeypatch.setattr(contestants.networks, "prepare", lambda *_: None)
    workshop = Workshop(tmp_path / "cache", tmp_path, "efficientnet-lite0")
    monkeypatch.setattr(workshop, "servable", lambda _: tmp_path / "labels")
    return workshop


@pytest.mark.parametrize(
    "contestant",
    [replace(CONTESTANTS["ours-fast"], processes=2), CONTESTANTS["direct"]],
    ids=["two servers", "no server"],
)
def test_a_contestant_is_started_asked_and_ended(contestant: Contestant, workshop: Workshop, tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "labels")
    photo = tmp_path / "photo"
    photo.write_bytes(b"a photo")
    with start("it", contestant, workshop, {"small": photo}) as running:
        assert contestant.processes == len(running.pids)
        assert {"small": "ox"} == running.generator.labels
        load = running.generator.load(photo="small", callers=3, seconds=0.5)
        assert ({}, load["requests"]) == (load["errors"], load["answered"])
        tree = Tree(running.pids)
        assert 0 < tree.cpu_s()
        assert 50e6 < tree.memory_bytes()
    with pytest.raises(Exception, match="pid"):
        Tree(running.pids)


@pytest.mark.parametrize(
    ("contestant", "reason"),
    [
        (CONTESTANTS["litserve"], "make bench-peers makes"),
        (CONTESTANTS["triton"], "make bench-peers makes"),
        (Contestant("", "grpc", "fast", flags=("--rest_api_port=70000",)), "it does not start: .*70000"),
    ],
    ids=["web", "triton", "a server that ends"],
)
def test_who_does_not_work_here_is_left_out_with_a_reason(
    contestant: Contestant, reason: str, workshop: Workshop
) -> None:
    with pytest.raises(LeftOut, match=reason), start("it", contestant, workshop, {}):
        pass


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_settings_of_threads_are_flags_of_the_server(cores: int) -> None:
    found = threads.settings(cores)
    parsed = {name: flags.parse(setting.flags) for name, setting in found.items()}
    assert [] == [name for name, line in parsed.items() if line.unknown]
    assert {1, 2, cores} == {setting.processes for setting in found.values()}
    assert cores * 16 == parsed[f"grpc {cores * 16}"].integer("grpc_max_threads")


def test_what_a_server_started_ends_with_it(tmp_path: Path) -> None:
    program = "import subprocess, time; print(subprocess.Popen(['sleep', '100']).pid, flush=True); time.sleep(100)"
    with Server([sys.executable, "-c", program], port=free_port(), log=tmp_path / "log"):
        while not (pid := (tmp_path / "log").read_text().strip()):
            pass
        left = psutil.Process(int(pid))
        assert "sleep" == left.name()
    with suppress(psutil.NoSuchProcess):
        while left.status() != psutil.STATUS_ZOMBIE:  # the test's own limit ends this
            time.sleep(0.1)


def row(contestant: str, number: int, images_per_s: float, **others: Any) -> dict[str, Any]:
    figures = {"p50_ms": 10.0, "p99_ms": 250.4, "cpu_ms": 20.0, "peak_mb": 300.0 + number}
    named = {"contestant": contestant, "photo": "small", "callers": 8, "round": number}
    return {**named, **figures, "images_per_s": images_per_s, **others}


@pytest.fixture
def document() -> dict[str, Any]:
    """Three rounds of two contestants; ours is twice as fast in each, at half the CPU."""
    rows = [row("baseline", number, speed, cpu_ms=40.0) for number, speed in enumerate((10.0, 8.0, 30.0))]
    rows += [row("ours", number, speed) for number, speed in enumerate((20.0, 16.0, 60.0))]
    return {
        "network": "a-network",
        "machine": {"CPU": "a CPU, 2 cores", "TensorFlow": "2.21.0"},
        "against": "baseline",
        "rounds": 3,
        "seconds": 6.0,
        "sizes": {"small": [640, 427]},
        "contestants": {"baseline": "an export", "ours": "ours"},
        "left_out": {"triton": "no Triton"},
        "rows": rows,
    }


def test_tables_have_medians_spreads_and_ratios_of_rounds(document: dict[str, Any]) -> None:
    assert [
        "| baseline | 10.0 (8.0–30.0) | 1.00 | 10.0 | 250 | 40.0 (40.0–40.0) | 1.00 | 300 |",
        "| ours | 20.0 (16.0–60.0) | 2.00 | 10.0 | 250 | 20.0 (20.0–20.0) | 0.50 | 300 |",
    ] == report.table(document, photo="small", callers=8).splitlines()[2:]


def test_results_go_into_the_readme_between_its_marks(document: dict[str, Any], clone: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    readme = (clone / "README.md").read_text()
    (tmp_path / "README.md").write_text(readme)
    results = tmp_path / "results.json"
    results.write_text(json.dumps(document))
    for _ in range(2):  # the second finds what the first wrote
        run(clone, "benchmarks.publish", str(results), "--clone", str(tmp_path))
    written = (tmp_path / "README.md").read_text()
    before, _, rest = written.partition(publish.BEGIN)
    shown, _, after = rest.partition(publish.END)
    assert readme.partition(publish.BEGIN)[0] == before
    assert readme.partition(publish.END)[2] == after
    assert "a-network on a CPU, 2 cores, TensorFlow 2.21.0. Interleaved rounds (3 of 6 s), medians" in shown
    assert report.table(document, photo="small", callers=8) in shown
    assert "- `triton` was left out: no Triton" in (tmp_path / "docs" / "benchmark.md").read_text()
    assert "<svg" in (tmp_path / "docs" / "benchmark.svg").read_text()


def test_a_readme_without_marks_is_left_alone() -> None:
    with pytest.raises(ValueError, match="lacks <!-- benchmark -->"):
        publish.replace_between_marks("no marks\n", "content")
