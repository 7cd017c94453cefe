"""An ONNX model runs on the pixels of the network, and how far the answers of a SavedModel may differ from its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_models
import pytest
from onnx import TensorProto

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.task import Task, Tolerance
from savedmodel_bakery.exporter.tasks.unlabelled import Regress
from savedmodel_bakery.exporter.validation.agreement import CONVERSION, OnnxModel, onnx_network, run_network

# Of CONVERSION, the parts that task regress has.
REGRESS = Tolerance(atol=CONVERSION.atol, rtol=CONVERSION.rtol)

TOLERANCES = {
    "default": ("float32", {"atol": None, "rtol": None}, REGRESS),
    "stated": ("float32", {"atol": 0.5, "rtol": None}, REGRESS.replaced(atol=0.5)),
    "16 bits": ("bfloat16", {"atol": None, "rtol": None}, Regress.tolerance),
    "16 bits, stated": ("bfloat16", {"atol": 0.5, "rtol": None}, Regress.tolerance.replaced(atol=0.5)),
}


@pytest.mark.parametrize(("precision", "stated", "expected"), TOLERANCES.values(), ids=TOLERANCES)
def test_the_tolerance_is_that_of_conversions_or_the_tasks_and_parts_of_it_can_be_stated(
    precision: str, stated: dict[str, float | None], expected: Tolerance, recipe_of: Callable[..., Recipe]
) -> None:
    task: Task = Regress(("value",))
    recipe = recipe_of(precision=precision)
    assert expected == onnx_network(lambda pixels: pixels, recipe, task, stated).tolerance


RecipeOf = Callable[..., Recipe]

HEIGHT, WIDTH = 4, 6
IMAGE = np.random.default_rng(1).random((HEIGHT, WIDTH, 3), np.float32)
MEANS = IMAGE.mean(axis=(0, 1))
SCORES = np.exp(MEANS) / np.exp(MEANS).sum()


def outputs_of(path: Path, recipe: Recipe) -> dict[str, np.ndarray]:
    """Return the outputs for `IMAGE` by role."""
    return run_network(OnnxModel(path).network(recipe), IMAGE, recipe)


def several(path: Path) -> Path:
    """Write a model with the outputs `scores`, [batch, 3], and `planes`, the image itself as NCHW."""
    nodes: list[onnx_models.Node] = [
        ("ReduceMean", ["image"], "scores", {"axes": [2, 3], "keepdims": 0}),
        ("Identity", ["image"], "planes", {}),
    ]
    shape = ["batch", 3, HEIGHT, WIDTH]
    return onnx_models.write(path, nodes, {"image": shape}, {"scores": ["batch", 3], "planes": shape})


def detector(path: Path) -> Path:
    """Write a model with the outputs `boxes`, a box of the first four values, and `scores`, for one class."""
    nodes: list[onnx_models.Node] = [
        ("Constant", [], "rows", {"value_ints": [1, -1, 4]}),
        ("Constant", [], "columns", {"value_ints": [1, -1, 1]}),
        ("Reshape", ["image", "rows"], "boxes", {}),
        ("ReduceMean", ["image"], "means", {"axes": [2, 3], "keepdims": 0}),
        ("Reshape", ["means", "columns"], "scores", {}),
    ]
    image = {"image": [1, 3, HEIGHT, WIDTH]}
    return onnx_models.write(path, nodes, image, {"boxes": [1, 18, 4], "scores": [1, 3, 1]})


INPUTS: dict[str, dict[str, Any]] = {
    "NCHW": {},
    "NHWC": {"layout": "NHWC"},
    "NCHW, one image": {"batch": 1},
    "NHWC, one image": {"layout": "NHWC", "batch": 1},
    "NCHW, images of any size": {"size": "side"},
    "NHWC, images of any size": {"layout": "NHWC", "size": "side"},
}


@pytest.mark.parametrize("options", INPUTS.values(), ids=INPUTS)
def test_the_image_is_passed_in_the_layout_that_the_input_declares(
    options: dict[str, Any], recipe_of: RecipeOf, tmp_path: Path
) -> None:
    path = onnx_models.means(tmp_path / "means.onnx", **{"size": 4, **options})
    recipe = recipe_of(size=(4, 4))
    outputs = run_network(OnnxModel(path).network(recipe), IMAGE[:, :4], recipe)
    means = IMAGE[:, :4].mean(axis=(0, 1))
    np.testing.assert_allclose(np.exp(means) / np.exp(means).sum(), outputs["vector"], rtol=1e-5)


@pytest.mark.parametrize("name", ["scores", "output_0"])
def test_one_of_several_outputs_is_selected_by_its_name_or_by_its_number(
    name: str, recipe_of: RecipeOf, tmp_path: Path
) -> None:
    outputs = outputs_of(several(tmp_path / "several.onnx"), recipe_of(size=(HEIGHT, WIDTH), source_output=name))
    np.testing.assert_allclose(MEANS, outputs["vector"], rtol=1e-5)


def test_a_map_of_a_model_with_nchw_input_is_returned_as_nhwc(recipe_of: RecipeOf, tmp_path: Path) -> None:
    recipe = recipe_of(size=(HEIGHT, WIDTH), source_output="planes", task="segment")
    np.testing.assert_array_equal(IMAGE, outputs_of(several(tmp_path / "several.onnx"), recipe)["map"])


@pytest.mark.parametrize("names", [None, "boxes=boxes,scores=scores", "boxes=output_0,scores=output_1"])
def test_the_outputs_of_a_detector_are_assigned_by_name(names: str | None, recipe_of: RecipeOf, tmp_path: Path) -> None:
    recipe = recipe_of(size=(HEIGHT, WIDTH), task="detect", boxes="yxyx", box_unit="fractions", source_outputs=names)
    outputs = outputs_of(detector(tmp_path / "detector.onnx"), recipe)
    np.testing.assert_array_equal(IMAGE.transpose(2, 0, 1).reshape(-1, 4), outputs["boxes"])
    np.testing.assert_allclose(MEANS[:, np.newaxis], outputs["scores"], rtol=1e-5)


REJECTED: dict[str, tuple[Callable[[Path], Path], dict[str, Any], str]] = {
    "several outputs, none selected": (several, {}, 'm.onnx: the network has several outputs, "output_0", '),
    "no such output": (several, {"source_output": "x"}, 'm.onnx: no output \'x\'; the model has "planes", "scores"'),
    "no boxes": (
        several,
        {"task": "detect", "boxes": "yxyx", "box_unit": "pixels"},
        "m.onnx: cannot infer which outputs are the boxes and the scores: the network has ",
    ),
    "another dtype": (
        lambda path: onnx_models.means(path, size="side", dtype=TensorProto.DOUBLE),
        {},
        "m.onnx takes tensor(double) ['batch', 3, 'side', 'side']: must take tensor(float) [1, 3, 4, 6] (NCHW) or "
        "[1, 4, 6, 3] (NHWC)",
    ),
    "a batch of two": (
        lambda path: onnx_models.means(path, size="side", batch=2),
        {},
        "m.onnx takes tensor(float) [2, 3, 'side', 'side']: must take ",
    ),
    "gray images": (several, {"channels": "GRAY"}, "must take tensor(float) [1, 1, 4, 6] (NCHW) or"),
    "two inputs": (
        lambda path: onnx_models.write(path, [("Add", ["a", "b"], "c", {})], {"a": [1], "b": [1]}, {"c": [1]}),
        {},
        "m.onnx has 2 inputs: must have one, for a batch of images",
    ),
}


@pytest.mark.parametrize(("write", "changes", "message"), REJECTED.values(), ids=REJECTED)
def test_a_model_that_does_not_fit_the_recipe_is_rejected(
    write: Callable[[Path], Path], changes: dict[str, Any], message: str, recipe_of: RecipeOf, tmp_path: Path
) -> None:
    path = write(tmp_path / "m.onnx")
    with pytest.raises(SourceError) as caught:
        OnnxModel(path).network(recipe_of(**{"size": (HEIGHT, WIDTH), **changes}))
    assert message in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^file not found: .*none\.onnx$"):
        OnnxModel(tmp_path / "none.onnx")


def test_an_image_that_the_model_cannot_compute_is_reported(recipe_of: RecipeOf, tmp_path: Path) -> None:
    """Its input declares no sizes, but the network needs 5 pixels."""
    nodes: list[onnx_models.Node] = [
        ("Constant", [], "shape", {"value_ints": [1, 5]}),
        ("Reshape", ["image", "shape"], "scores", {}),
    ]
    path = onnx_models.write(tmp_path / "m.onnx", nodes, {"image": ["b", "c", "h", "w"]}, {"scores": [1, 5]})
    with pytest.raises(SourceError, match=r"m\.onnx does not accept an image \[1, 3, 4, 6\]: "):
        outputs_of(path, recipe_of(size=(HEIGHT, WIDTH)))
