"""Makes the steps of the example pipelines from constructed networks, without validating each of them."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import shape_models

from savedmodel_bakery.exporter.function.function_module import Function, FunctionModule, parse_input
from savedmodel_bakery.exporter.publish import RECIPE_FILE
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import ServableModule

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "pipelines"
PREPROCESSING = {"resize": "bilinear", "antialias": True, "scale": "0..1", "channels": "RGB"}
DETECTOR = {"task": "detect", "crop": "letterbox", "size": 96, "boxes": "yxyx", "box_unit": "fractions"}
CLASSIFIER = {"task": "classify", "crop": "none", "size": 8}


@contextmanager
def example(name: str, folder: Path) -> Iterator[Path]:
    """Copy an example to a folder, and make it the working directory, from which its functions are imported."""
    working = folder / name
    shutil.copytree(EXAMPLES / name, working)
    before, modules = Path.cwd(), set(sys.modules)
    sys.path.insert(0, str(working))
    try:
        with _directory(working, before):
            yield working
    finally:
        sys.path.remove(str(working))
        for module in set(sys.modules) - modules:
            if str(working) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]


@contextmanager
def _directory(folder: Path, before: Path) -> Iterator[None]:
    import os

    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def save_network(name: str, network: Callable[..., Any], **recipe: Any) -> None:
    """Save a network that looks for red, green and blue as version 1 of a model."""
    Path("labels.txt").write_text("\n".join(shape_models.LABELS) + "\n")
    values = {"model": f"{name}:network", "labels": "labels.txt", "outputs": "probabilities", **PREPROCESSING, **recipe}
    complete = Recipe.from_values(values)
    version = Path("saved_model", name, "1")
    ServableModule(network, complete, shape_models.LABELS).save(version)
    (version / RECIPE_FILE).parent.mkdir()
    (version / RECIPE_FILE).write_text(complete.to_toml())


def save_function(path: str, *inputs: str) -> None:
    """Save the function `module:callable` of the example as version 1 of a model of its name."""
    module, _, name = path.partition(":")
    declared = [parse_input(text) for text in inputs]
    function = Function(getattr(importlib.import_module(module), name), declared)
    FunctionModule(function, declared, path).save(Path("saved_model", name, "1"))


def add_sub_mul() -> None:
    """Save the steps of the example of this name, in its folder."""
    save_function("arithmetic:add_sub", "a:float32[4]", "b:float32[4]")
    save_function("arithmetic:mul", "x:float32[4]", "y:float32[4]")


def shape_colours() -> None:
    """Save the steps of the example of this name, in its folder."""
    save_network("shapes", shape_models.detector(), **DETECTOR)
    save_network("colours", shape_models.classifier(), **CLASSIFIER)
    save_function("crops:cut", "image:string[?]", "boxes:float32[?,?,4]", "count:int32[?]")
    scores = ("shape_scores:float32[?,?]", "colours:string[?,?]", "colour_scores:float32[?,?]")
    save_function("crops:describe", "shapes:string[?,?]", *scores, "crops:int32[?]")


def two_classifiers() -> None:
    """Save the steps of the example of this name, in its folder."""
    for name, sharpness in (("sharp", 8), ("blurred", 2)):
        network = shape_models.colour_network((sharpness * np.eye(3)).tolist(), [0.0] * 3, "softmax")
        save_network(name, network, **CLASSIFIER)
    others = ("other_class_ids:int32[?,?]", "other_scores:float32[?,?]")
    save_function("averages:average", "labels:string[?,?]", "class_ids:int32[?,?]", "scores:float32[?,?]", *others)
