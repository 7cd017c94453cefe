"""The embedded server returns the responses that a real tensorflow_model_server was recorded with (tests/golden)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_models
import grpc
import pytest
import recorded
from server_process import ServerProcess

GOLDEN = Path(__file__).parent.parent / "golden"
DOCUMENTS = {kind: json.loads((GOLDEN / f"{kind}.json").read_text()) for kind in ("grpc", "rest")}
SETUPS: dict[str, Any] = {name: setup for file in DOCUMENTS.values() for name, setup in file["setups"].items()}

# Cases with another response, and why.
DIFFERENCES = {
    "rest method/head-status": "the real server sends a body with its answer to HEAD, which breaks the connection",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded")
    golden_models.make_all(root)
    return root


def grouped_setups() -> list[list[str]]:
    """Return the set-ups grouped by their flags and files; a group shares one server."""
    groups: dict[str, list[str]] = {}
    for name, setup in SETUPS.items():
        groups.setdefault(json.dumps(setup, sort_keys=True), []).append(name)
    return list(groups.values())


def cases(kind: str, setups: list[str]) -> list[recorded.Case]:
    return [case for case in DOCUMENTS[kind]["cases"] if case["setup"] in setups]


def flags(setup: dict[str, Any], models: Path, folder: Path) -> list[str]:
    """Write the files of a set-up and return its flags."""
    paths = {"MODELS": str(models)}
    for key in ("config", "batching", "monitoring"):
        if key in setup:
            path = folder / key
            path.write_text(setup[key].replace("{MODELS}", str(models)))
            paths[key.upper()] = str(path)
    return [flag.format(**paths) for flag in setup["flags"]]


@pytest.mark.parametrize("setups", grouped_setups(), ids=" ".join)
def test_responses_equal_the_real_servers(setups: list[str], models: Path, tmp_path: Path) -> None:
    differences: dict[str, str | None] = {}
    with ServerProcess(*flags(SETUPS[setups[0]], models, tmp_path), log=tmp_path / "log") as server:
        no_limit = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(server.target, options=no_limit) as channel:
            for case in cases("grpc", setups):
                differences[f"grpc {case['id']}"] = recorded.difference(
                    case, recorded.send_grpc(channel, case, str(models))
                )
        for case in cases("rest", setups):
            differences[f"rest {case['id']}"] = recorded.difference(case, recorded.send_rest(server, case))
        assert server.process.poll() is None
    differing = {key: text for key, text in differences.items() if text}
    assert {} == {key: text for key, text in differing.items() if key not in DIFFERENCES}
    assert differences.keys() & DIFFERENCES.keys() == differing.keys() & DIFFERENCES.keys()


def test_all_recorded_cases_are_replayed() -> None:
    assert {"grpc": 210, "rest": 167} == {kind: len(file["cases"]) for kind, file in DOCUMENTS.items()}
    assert {case["setup"] for file in DOCUMENTS.values() for case in file["cases"]} == SETUPS.keys()
