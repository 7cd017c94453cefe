"""Keras files with code of their own: what they need is named, and loads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources import read_network

OWN_LAYERS = """
import keras

class Halve(keras.layers.Layer):
    def call(self, images):
        return images / 2
"""
SAVE = """
import keras
from own_layers import Halve

image = keras.Input((8, 8, 3))
for layer, name in ((Halve(), "own.keras"), (keras.layers.Lambda(lambda x: x / 2), "code.keras")):
    keras.Model(image, keras.layers.GlobalAveragePooling2D()(layer(image))).save(name)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by another process, so that this one does not know the layers."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "own_layers.py").write_text(OWN_LAYERS)
    subprocess.run([sys.executable, "-c", SAVE], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize(
    ("file", "message", "option"),
    [
        (
            "own.keras",
            r"it does not know 'Halve', which the model uses; pass --custom-objects MODULE, .* or pass --model package",
            {"custom_objects": "own_layers"},
        ),
        (
            "code.keras",
            r"it has a Lambda layer, whose code is in the file; pass --trust-model to run .* or pass --model package",
            {"trust_model": True},
        ),
    ],
)
def test_what_a_file_needs(
    files: Path, monkeypatch: pytest.MonkeyPatch, file: str, message: str, option: dict[str, object]
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(SourceError, match=message):
        read_network({"model": file})
    network = read_network({"model": file, **option})
    np.testing.assert_allclose(network.call(tf.ones([1, 8, 8, 3])), np.full([1, 3], 0.5))


def test_the_module_that_was_tried_is_named(files: Path) -> None:
    with pytest.raises(SourceError, match="neither Keras nor math knows 'Halve', which the model uses"):
        read_network({"model": str(files / "own.keras"), "custom_objects": "math"})


def test_a_module_that_is_not_there(files: Path) -> None:
    with pytest.raises(SourceError, match="cannot import 'no_layers': ModuleNotFoundError"):
        read_network({"model": str(files / "own.keras"), "custom_objects": "no_layers"})


def test_a_module_that_exits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a script that was not meant to be imported."""
    (tmp_path / "script_that_exits.py").write_text("raise SystemExit(2)")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="cannot import 'script_that_exits:build': SystemExit: 2"):
        read_network({"model": "script_that_exits:build"})


@pytest.mark.parametrize(
    ("model", "hint"),
    [("net.tflite", "a TF Lite model"), ("a.pt", "a PyTorch")],
)
def test_other_formats_are_known_by_name(model: str, hint: str) -> None:
    with pytest.raises(SourceError, match=f"{model} is {hint}"):
        read_network({"model": model})


def halve(images: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(images / 2, axis=[1, 2])


class Halve(tf.Module):
    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        return halve(images)


def as_keras_model() -> keras.Model:
    image = keras.Input((8, 8, 3))
    return keras.Model(image, keras.layers.GlobalAveragePooling2D()(image / 2))


OBJECTS = {
    "Keras model": as_keras_model(),
    "tf.Module": Halve(),
    "function": halve,
    "tf.function": tf.function(halve),
    "function that returns a model": as_keras_model,
    "function with a default": lambda model=as_keras_model: model(),
}


@pytest.mark.parametrize("network", OBJECTS.values(), ids=OBJECTS)
def test_a_model_may_be_an_object(network: Any) -> None:
    loaded = read_network({"model": "object:halve"}, network)
    np.testing.assert_allclose(loaded.call(tf.ones([1, 8, 8, 3])), np.full([1, 3], 0.5))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (7, "object:x is a int: must be a Keras model or a callable tf.Module"),
        (lambda: 7, "object:x is a int: must be"),
        (lambda: 1 / 0, "object:x failed with ZeroDivisionError: division by zero"),
    ],
    ids=["number", "function that returns a number", "function that fails"],
)
def test_other_objects_are_rejected(network: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_network({"model": "object:x"}, network)


def test_an_object_cannot_be_loaded_again() -> None:
    with pytest.raises(SourceError, match=r"^object:halve was an object in Python: pass it to bake\(model=…\) again$"):
        read_network({"model": "object:halve"})


def test_options_for_files_are_not_for_objects() -> None:
    with pytest.raises(SourceError, match="--layer cannot be used with object:x: it is a function"):
        read_network({"model": "object:x", "layer": "top"}, halve)
    with pytest.raises(SourceError, match="--weights cannot be used with model object:x"):
        read_network({"model": "object:x", "weights": "none"}, halve)
