"""A SavedModel that was converted from ONNX is compared with the original model, which onnxruntime runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from optional_packages import run_python

# A network of two classes in Keras, and in ONNX with channels first, as torch exports it; one has other weights.
MODELS = """
import keras
import numpy as np
import onnx
from onnx import helper, numpy_helper

weights = np.float32([[8, -8], [0, 0], [-8, 8]])
images = keras.Input((8, 8, 3))
dense = keras.layers.Dense(2, activation="softmax")
keras.Model(images, dense(keras.layers.GlobalAveragePooling2D()(images))).save("m.keras")
dense.set_weights([weights, np.zeros(2, np.float32)])
keras.Model(images, dense(keras.layers.GlobalAveragePooling2D()(images))).save("m.keras")


def save(name, weights, shape=("n", 3, 8, 8), dtype=onnx.TensorProto.FLOAT):
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=onnx.TensorProto.FLOAT),
        helper.make_node("GlobalAveragePool", ["floats"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["scores"]),
    ]
    inputs = [helper.make_tensor_value_info("images", dtype, shape)]
    outputs = [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 2])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights, "weights")])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), name)


save("same.onnx", weights)
save("swapped.onnx", weights[::-1].copy())
save("larger.onnx", weights, ("n", 3, 16, 16))
save("rows.onnx", weights, ("n", 3))
save("bytes.onnx", weights, ("n", 3, 8, 8), onnx.TensorProto.UINT8)
open("damaged.onnx", "wb").write(b"no model")
"""
RECIPE = """
model = "m.keras"
labels = "labels.txt"
outputs = "probabilities"
crop = "none"
resize = "area"
antialias = false
scale = "0..1"
channels = "RGB"
"""


@pytest.fixture(scope="module")
def bake(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """Bake the Keras model with a reference, in a folder with all of them."""
    folder = tmp_path_factory.mktemp("onnx")
    made = run_python(clone, "-c", MODELS, folder=folder)
    assert 0 == made.returncode, made.stderr
    (folder / "m.toml").write_text(RECIPE)
    (folder / "labels.txt").write_text("warm\ncold\n")

    def bake(reference: str) -> subprocess.CompletedProcess[str]:
        command = ["-m", "savedmodel_bakery", "bake", "--recipe", "m.toml", "--reference", reference]
        return run_python(clone, *command, folder=folder)

    return bake


def test_a_correct_conversion_is_published(bake: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    baked = bake("same.onnx")
    assert 0 == baked.returncode, baked.stderr
    assert "verifying it in a fresh process, and against same.onnx …" in baked.stderr
    assert "saved_model/m/1\n" == baked.stdout


REJECTED = {
    "swapped.onnx": r"on chelsea\.png the SavedModel answers warm 0\.\d+, swapped\.onnx cold 0\.\d+: score difference "
    r"0\.\d+ \(allowed: .*\); on the same pixels, so the model was not converted correctly, or they have other weights",
    "larger.onnx": r"cannot run larger\.onnx on images \(1, 3, 8, 8\): .*",
    "rows.onnx": r"rows\.onnx takes images tensor\(float\) \['n', 3\]: must be one batch of float32 images, .*",
    "bytes.onnx": r"bytes\.onnx takes images tensor\(uint8\) \['n', 3, 8, 8\]: must be one batch of float32 images, .*",
    "damaged.onnx": r"onnxruntime \S+ cannot load damaged\.onnx: .*",
}


@pytest.mark.parametrize(("reference", "message"), REJECTED.items(), ids=REJECTED)
def test_another_reference_is_rejected(
    bake: Callable[[str], subprocess.CompletedProcess[str]], reference: str, message: str
) -> None:
    baked = bake(reference)
    assert (1, "") == (baked.returncode, baked.stdout)
    last = baked.stderr.splitlines()[-1]
    assert re.fullmatch(f"error: {message}", last), last
