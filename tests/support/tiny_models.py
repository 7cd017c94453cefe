"""A working directory with models that bake in seconds, and a way to run the exporter in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import warm_start

TIMEOUT_S = 120

TINY = r'''
import keras
import numpy as np


def build(activation="softmax", last=None):
    """Returns the mean of each channel, which are logits for softmax."""
    image = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    dense = keras.layers.Dense(3, activation=activation)
    outputs = dense(pooled)
    dense.set_weights([np.eye(3), np.zeros(3)])
    return keras.Model(image, last(outputs) if last else outputs)


def logits():
    return build(activation=None)


class Counting(keras.layers.Layer):
    """Counts its calls in Python; a graph keeps the number with which it was traced."""

    calls = 0

    def call(self, tensor):
        self.calls += 1
        return tensor * self.calls


def counting():
    return build(activation=None, last=lambda outputs: keras.layers.Softmax()(Counting()(outputs)))


def not_a_number():
    return build(activation=None, last=lambda outputs: keras.layers.Lambda(lambda x: x * float("nan"))(outputs))


def colour_map():
    image = keras.Input((8, 8, 3))
    return keras.Model(image, keras.layers.Conv2D(3, 1)(image))


def blind():
    """A detector whose scores are all 0."""
    image = keras.Input((8, 8, 3))
    cells = keras.layers.Reshape((64, 3))(image)
    zeros = {name: keras.layers.Dense(size, kernel_initializer="zeros")(cells) for name, size in SIZES.items()}
    return keras.Model(image, zeros)


SIZES = {"boxes": 4, "scores": 3}


def fails():
    raise RuntimeError("no weights\nhere")


number = 7
'''

RECIPE = {
    "labels": "rgb.txt",
    "crop": "none",
    "resize": "bilinear",
    "antialias": False,
    "scale": "0..1",
    "channels": "RGB",
    "outputs": "probabilities",
}
OPTIONS = [
    *("--labels", "rgb.txt"),
    *("--crop", "none"),
    *("--resize", "bilinear", "--no-antialias"),
    *("--scale", "0..1"),
    *("--channels", "RGB"),
    *("--outputs", "probabilities"),
]


class Run(NamedTuple):
    """A finished run of the exporter, with the files below the model root before and after."""

    code: int
    stdout: str
    stderr: str
    before: dict[str, bytes]
    after: dict[str, bytes]


def write_workshop(folder: Path) -> None:
    """Write the module `tiny` and label files into a folder."""
    (folder / "tiny.py").write_text(TINY)
    (folder / "rgb.txt").write_text("red\ngreen\nblue\n")
    (folder / "two.txt").write_text("red\ngreen\n")


def files(root: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def bake_arguments(root: Path | str) -> list[str]:
    """Return the arguments with which the exporter bakes `tiny:build` into a model root, as model `tiny`."""
    return ["bake", "--model", "tiny:build", "--name", "tiny", "--out", str(root), *OPTIONS]


def command(*arguments: str) -> list[str]:
    """Return the command that runs the exporter."""
    return [sys.executable, "-m", "savedmodel_bakery.exporter", *arguments]


def run(workshop: Path, *arguments: str, root: str = "out", is_cold: bool = False) -> Run:
    """Run the exporter in a folder; if `is_cold`, not as a fork, so that it imports all that it needs."""
    before = files(workshop / root)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"} | ({warm_start.ADDRESS: ""} if is_cold else {})
    ended = subprocess.run(
        command(*arguments),
        cwd=workshop,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Run(ended.returncode, ended.stdout, ended.stderr, before, files(workshop / root))
