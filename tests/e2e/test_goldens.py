"""`client check` replays a version's golden requests on a live server over gRPC and REST, and reports differences."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ServerProcess, free_port

GOLDENS = Path("assets.extra") / "goldens"


@pytest.fixture(scope="module")
def pets(task_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base path of a tiny classifier, version 1."""
    return shutil.copytree(task_models.parent / "classify" / "1", tmp_path_factory.mktemp("pets") / "1").parent


@pytest.fixture(scope="module")
def server(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ("--model_name=pets", f"--model_base_path={pets}")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("goldens") / "log") as running:
        yield running


@pytest.fixture
def copy(pets: Path, tmp_path: Path) -> Path:
    """The folder of a version without its weights, for tests that change its goldens."""
    shutil.copytree(pets / "1" / GOLDENS, tmp_path / "1" / GOLDENS)
    shutil.copy(pets / "1" / "saved_model.pb", tmp_path / "1")
    return tmp_path / "1"


def check(server: ServerProcess, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    ports = ("--port", str(server.port), "--rest_api_port", str(server.rest_api_port))
    command = [sys.executable, "-m", "savedmodel_bakery.client", *ports, "check", str(path), "-m", "pets", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_served_version_agrees_with_its_goldens(server: ServerProcess, pets: Path) -> None:
    result = check(server, pets / "1")
    assert (0, "14 of 14 responses agree\n") == (result.returncode, result.stderr)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert {"grpc", "rest"} == {transport for transport, *_ in rows}
    assert {"agrees"} == {verdict for *_, verdict in rows}


def test_goldens_of_the_usual_signatures_are_the_warm_up_requests(server: ServerProcess) -> None:
    assert "replayed 3 warm-up records" in server.log.read_text()


def test_the_check_can_be_limited_to_one_transport(server: ServerProcess, pets: Path) -> None:
    result = check(server, pets, "--format", "REST", "--json")  # the folder of the model
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert 7 == len(rows)
    assert {("rest", True)} == {(row["transport"], row["agrees"]) for row in rows}


def test_the_check_over_v2_leaves_out_what_v2_lacks(server: ServerProcess, pets: Path) -> None:
    result = check(server, pets / "1", "--format", "V2")
    assert (0, "6 of 6 responses agree\n") == (result.returncode, result.stderr)
    assert {"v2"} == {line.split("\t")[0] for line in result.stdout.splitlines()}
    assert "classify" not in result.stdout


def replace(version: Path, signature: str, old: str, new: str) -> None:
    path = version / GOLDENS / f"{signature}.jsonl"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_another_label_is_a_difference(server: ServerProcess, copy: Path) -> None:
    """The base64 text is `red`, and its replacement `green`."""
    replace(copy, "serving_default", "cmVk", "Z3JlZW4=")
    result = check(server, copy)
    assert (1, "12 of 14 responses agree\n") == (result.returncode, result.stderr)
    assert "grpc\tserving_default\t1\t\"output_0\" is b'red' at [0], expected b'green'\n" in result.stdout


def test_another_score_is_a_difference_beyond_the_tolerance(server: ServerProcess, copy: Path) -> None:
    (exchange,) = [json.loads(line) for line in (copy / GOLDENS / "classify.jsonl").read_text().splitlines()]
    exchange["response"]["result"]["classifications"][0]["classes"][0]["score"] -= 0.01
    (copy / GOLDENS / "classify.jsonl").write_text(json.dumps(exchange))
    result = check(server, copy)
    assert 1 == result.returncode
    assert 'rest\tclassify\t1\t"scores" differs by 0.01; allowed is 0.001\n' in result.stdout


def test_a_version_that_is_not_served_fails(server: ServerProcess, copy: Path) -> None:
    result = check(server, copy.rename(copy.with_name("7")))
    assert (1, "0 of 14 responses agree\n") == (result.returncode, result.stderr)
    assert "Specific(pets, 7)" in result.stdout


def test_an_output_of_another_type_is_a_difference(server: ServerProcess, copy: Path) -> None:
    """For example if another model is served under the name."""
    path = copy / GOLDENS / "serving_default.jsonl"
    exchange = json.loads(path.read_text())
    exchange["response"]["outputs"]["output_0"] = {
        "dtype": "DT_INT32",
        "tensor_shape": {"dim": [{"size": "1"}]},
        "int_val": [7],
    }
    path.write_text(json.dumps(exchange))
    result = check(server, copy)
    assert 1 == result.returncode
    assert 'grpc\tserving_default\t1\t"output_0" is object, expected int32\n' in result.stdout


def test_a_folder_without_goldens_is_rejected(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").touch()
    result = check(server, tmp_path)
    assert 2 == result.returncode
    assert f"{tmp_path} has no assets.extra/goldens: pass a version that was baked, such as MODEL/1" in result.stderr


def test_damaged_goldens_are_rejected(server: ServerProcess, copy: Path) -> None:
    (copy / GOLDENS / "top_k.jsonl").write_text('{"request": {}, "response": 7}\n')
    result = check(server, copy)
    assert 2 == result.returncode
    assert f"the goldens in {copy / GOLDENS} are damaged: " in result.stderr


def test_an_unreachable_server_exits_3(server: ServerProcess, copy: Path) -> None:
    result = check(server, copy, "--port", str(free_port()))
    assert 3 == result.returncode
    assert "is a model server running there?" in result.stderr
