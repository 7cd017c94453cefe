"""Candidates start, answer the load generator, and end; the figures themselves are not tested."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import model_makers
import pytest

from benchmarks import candidates
from benchmarks.candidates import CANDIDATES, Candidate, CandidateSkippedError, Workshop, start
from benchmarks.processes import Tree


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """A workshop whose servables are tiny and whose environments are missing."""
    monkeypatch.setattr(candidates.networks, "prepare", lambda *_: None)
    workshop = Workshop(tmp_path / "cache", tmp_path, "efficientnet-lite0")
    monkeypatch.setattr(workshop, "servable", lambda _: tmp_path / "labels")
    return workshop


@pytest.mark.slow
@pytest.mark.parametrize(
    "candidate",
    [replace(CANDIDATES["ours-fast"], processes=2), CANDIDATES["direct"]],
    ids=["two servers", "no server"],
)
def test_a_candidate_is_started_called_and_ended(candidate: Candidate, workshop: Workshop, tmp_path: Path) -> None:
    model_makers.labelling(tmp_path / "labels")
    photo = tmp_path / "photo"
    photo.write_bytes(b"a photo")
    with start("it", candidate, workshop, {"small": photo}) as running:
        assert candidate.processes == len(running.pids)
        assert {"small": "ox"} == running.generator.labels
        load = running.generator.load(photo="small", callers=3, seconds=0.5)
        assert ({}, load["requests"]) == (load["errors"], load["answered"])
        tree = Tree(running.pids)
        assert 0 < tree.cpu_s()
        assert 0 < tree.memory_bytes()
    with pytest.raises(Exception, match="pid"):
        Tree(running.pids)


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (CANDIDATES["litserve"], "is missing; make bench-peers makes it"),
        (CANDIDATES["triton"], "is missing; make bench-peers makes it"),
        (Candidate("", "grpc", "fast", flags=("--rest_api_port=70000",)), "it does not start: .*70000"),
    ],
    ids=["web", "triton", "a server that ends"],
)
def test_a_candidate_that_does_not_work_here_is_skipped_with_a_reason(
    candidate: Candidate, reason: str, workshop: Workshop
) -> None:
    with pytest.raises(CandidateSkippedError, match=reason), start("it", candidate, workshop, {}):
        pass
