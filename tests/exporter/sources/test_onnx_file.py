"""ONNX files: how the converter is run. docs/how-to/pytorch.md runs the real one, in `make test-guides`."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources import read_network


def interpreter(path: Path, script: str) -> str:
    """Write a program in place of Python; its arguments are -c CODE -i MODEL -o FOLDER."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ONNX file, as far as these tests read it, and what it becomes."""
    monkeypatch.chdir(tmp_path)

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], name="image")], autograph=False)
    def mean(image: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"mean": tf.reduce_mean(image, [1, 2])}

    tf.saved_model.save(tf.Module(), "converted", signatures=mean)
    Path("net.onnx").write_bytes(b"graph")
    return "net.onnx"


def test_the_converted_network_is_used(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "here")
    python = interpreter(
        tmp_path / "python", f'test -z "$PYTHONPATH" && grep -q graph "$4" && cp -r {tmp_path}/converted/* "$6"'
    )
    assert python == f"{tmp_path}/python"
    network = read_network({"model": model, "onnx2tf": "./python"})
    assert {"size": (8, 8)} == network.recipe
    np.testing.assert_allclose(np.ones((1, 3)), network.call(tf.ones([1, 8, 8, 3])))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo opset 99 is unknown >&2; exit 1", "onnx2tf cannot convert net.onnx: opset 99 is unknown"),
        ("exit 0", "onnx2tf cannot convert net.onnx: it ends with code 0"),
    ],
)
def test_what_the_converter_says_is_reported(model: str, tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_network({"model": model, "onnx2tf": interpreter(tmp_path / "python", script)})


def test_a_file_without_a_converter(model: str) -> None:
    with pytest.raises(SourceError, match=r"net\.onnx is an ONNX model, which onnx2tf converts: pass --onnx2tf PYTHON"):
        read_network({"model": model})
    with pytest.raises(SourceError, match="cannot run no-python: there is no such program"):
        read_network({"model": model, "onnx2tf": "no-python"})
    with pytest.raises(SourceError, match=r"cannot read other\.onnx: there is no such file"):
        read_network({"model": "other.onnx"})
