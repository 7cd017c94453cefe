"""Networks of every task in int8: their answers are compared with those of float32, by the measure of the task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import int8_networks
import keras
import numpy as np
import pytest
from int8_networks import SIDE, block
from keras import layers
from PIL import Image

from savedmodel_bakery import bake

pytestmark = pytest.mark.slow

POINTS = "nose,left_eye,right_eye,mouth"


def _pooled(tensor: Any) -> Any:
    return layers.GlobalAveragePooling2D()(tensor)


def _boxes(tensor: Any) -> dict[str, Any]:
    """Return a box per pixel, as a fraction of the image, and the scores of three classes."""
    edges = layers.Conv2D(4, 1, activation="sigmoid", kernel_initializer="he_normal")(tensor)
    scores = layers.Conv2D(3, 1, activation="sigmoid", kernel_initializer="he_normal")(tensor)
    return {"boxes": layers.Reshape((-1, 4))(edges), "scores": layers.Reshape((-1, 3))(scores)}


def _maps(count: int, activation: str | None) -> Callable[[Any], Any]:
    return lambda tensor: layers.Conv2D(count, 1, activation=activation, kernel_initializer="he_normal")(tensor)


def _several(tensor: Any) -> dict[str, Any]:
    return {"vector": _pooled(tensor), "map": _maps(3, None)(tensor)}


_HEADS = [
    {"name": "look", "task": "embed", "output": "vector"},
    {"name": "parts", "task": "segment", "output": "map", "labels": "three.txt", "outputs": "logits"},
]
TASKS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "embed": (_pooled, {}),
    "regress": (lambda tensor: layers.Dense(2)(_pooled(tensor)), {"output_names": "age,height"}),
    "segment": (_maps(3, None), {"labels": "three.txt", "outputs": "logits"}),
    "image": (_maps(3, "sigmoid"), {"output_range": "0..1"}),
    "keypoints": (_maps(4, "sigmoid"), {"point_names": POINTS}),
    "tensors": (_several, {}),
    "heads": (_several, {"heads": _HEADS}),
    "detect": (
        _boxes,
        {
            "labels": "three.txt",
            "outputs": "probabilities",
            "boxes": "yxyx",
            "box_unit": "fractions",
            "source_outputs": "boxes=boxes,scores=scores",
        },
    ),
}


@pytest.mark.parametrize("task", TASKS)
def test_answers_of_a_task(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for number, image in enumerate((int8_networks.images(60) * 60 + 127).clip(0, 255).astype(np.uint8)):
        Image.fromarray(image).save(f"photos/{number}.png")
    Path("three.txt").write_text("sea\nsky\nland\n")
    head, values = TASKS[task]
    keras.utils.set_random_seed(0)
    image = keras.Input((SIDE, SIDE, 3))
    model = keras.Model(image, head(int8_networks.attention(int8_networks.residual(block(image, 16, 3)))))
    recipe = {"task": task, "crop": "none", "resize": "bilinear", "antialias": False, "scale": "-1..1"}
    recipe |= {"channels": "RGB", "precision": "int8", "calibration": "photos", **values}
    with int8_networks.int8_always_gains():
        baked = bake(model=model, name=task, recipe=recipe, min_agreement=0)
    assert task == baked.recipe.answers.task
    int8 = baked.parity.int8
    assert int8 is not None
    assert 24 == int8.photos
    assert 0 < int8.max_change
    assert 0.2 < int8.share <= 1  # networks that were not trained turn small differences into large ones
    assert f"int8 and float32 have {int8.common} for" in "\n".join(int8.describe())
