"""Errors of loading and running a SavedModel have the runtime's message, without what Python's layers add."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.runtimes.tf_session import SavedModel
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

DATA = "variables/variables.data-00000-of-00001"


@pytest.fixture
def version(half_plus_two: Path, tmp_path: Path) -> Path:
    """A copy of half_plus_two, version 1."""
    return shutil.copytree(half_plus_two / "1", tmp_path / "1")


def load_error(path: Path) -> str:
    with pytest.raises(StatusError) as caught:
        SavedModel(path)
    return str(caught.value)


def test_a_missing_data_file(version: Path) -> None:
    (version / DATA).unlink()
    error = load_error(version)
    assert error.startswith(
        f"NOT_FOUND: {version / DATA}; No such file or directory\n\t [[{{{{node save/RestoreV2}}}}]]"
    )
    assert "Graph execution error" not in error


@pytest.mark.parametrize(("file", "kind"), [("saved_model.pb", "binary"), ("saved_model.pbtxt", "text")])
def test_a_graph_that_cannot_be_parsed(version: Path, file: str, kind: str) -> None:
    (version / "saved_model.pb").unlink()
    (version / file).write_bytes(b"\xff")
    assert f"DATA_LOSS: Can't parse {version / file} as {kind} proto" == load_error(version)


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
def test_an_unknown_tensor(half_plus_two: Path, name: str, reason: str) -> None:
    model = SavedModel(half_plus_two / "1")
    with pytest.raises(StatusError) as caught:
        model.run({}, [name], RequestContext())
    assert reason == str(caught.value)
    model.close()


def test_a_run_whose_shapes_numpy_cannot_have(half_plus_two: Path) -> None:
    """TensorFlow multiplies the sizes in their order, and so can't parse this shape."""
    model = SavedModel(half_plus_two / "1")
    x = Tensor(np.empty(0, np.float32), dtypes.BY_NAME["float"], (2**62, 2**62, 0))
    with pytest.raises(StatusError) as caught:
        model.run({"x:0": x}, ["y:0"], RequestContext())
    assert Code.INVALID_ARGUMENT is caught.value.code
    assert "Graph execution error" not in str(caught.value)
    assert "node ParseTensor" in str(caught.value)
    model.close()
