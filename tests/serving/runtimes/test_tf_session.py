"""A SavedModel that can't be loaded, or run as asked, is refused in TensorFlow's own words, without Python's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from savedmodel_bakery.serving.runtimes.tf_session import SavedModel, SessionOptions
from savedmodel_bakery.wire.status import StatusError

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture
def version(half_plus_two: Path, tmp_path: Path) -> Path:
    """A copy of half_plus_two, version 1."""
    return shutil.copytree(half_plus_two / "1", tmp_path / "1")


def refusal(path: Path) -> str:
    with pytest.raises(StatusError) as refused:
        SavedModel(path, SessionOptions())
    return str(refused.value)


def test_a_data_file_that_is_missing(version: Path) -> None:
    (version / DATA).unlink()
    said = refusal(version)
    assert said.startswith(
        f"NOT_FOUND: {version / DATA}; No such file or directory\n\t [[{{{{node save/RestoreV2}}}}]]"
    )
    assert "Graph execution error" not in said


@pytest.mark.parametrize(("file", "kind"), [("saved_model.pb", "binary"), ("saved_model.pbtxt", "text")])
def test_a_graph_that_does_not_parse(version: Path, file: str, kind: str) -> None:
    (version / "saved_model.pb").unlink()
    (version / file).write_bytes(b"\xff")
    assert f"DATA_LOSS: Can't parse {version / file} as {kind} proto" == refusal(version)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("y:5", "OUT_OF_RANGE: Node 'y' (type: 'AddV2', num of outputs: 1) does not have output 5"),
        (
            "no:0",
            "INVALID_ARGUMENT: Tensor no:0, specified in either feed_devices or fetch_devices was not found in the "
            "Graph",
        ),
    ],
)
def test_a_tensor_that_is_not_there(half_plus_two: Path, name: str, reason: str) -> None:
    model = SavedModel(half_plus_two / "1", SessionOptions())
    with pytest.raises(StatusError) as refused:
        model.run({}, [name])
    assert reason == str(refused.value)
    model.close()
