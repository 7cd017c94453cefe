"""Shared by the peers: loads a network and prepares photos. Runs in the peers' own environments."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf


class Classifier:
    """The network in the folder BENCH_NETWORK."""

    def __init__(self) -> None:
        folder = Path(os.environ["BENCH_NETWORK"])
        self.description = json.loads((folder / "network.json").read_text())
        self.network = tf.keras.models.load_model(folder / "network.keras")
        size = self.description["size"]
        self._scores = tf.function(
            lambda pixels: self.network(pixels, training=False),
            input_signature=[tf.TensorSpec([None, size, size, 3], tf.float32)],
        )
        self._read = tf.function(self._read_in_graph, input_signature=[tf.TensorSpec([], tf.string)])
        self._classify = tf.function(
            lambda photo: self._scores(self._read_in_graph(photo)[tf.newaxis]),
            input_signature=[tf.TensorSpec([], tf.string)],
        )

    def read_with_pillow(self, photo: bytes) -> np.ndarray:
        """Return a JPEG file as float32 [size, size, 3], with Pillow and NumPy."""
        from PIL import Image

        size = self.description["size"]
        with Image.open(io.BytesIO(photo)) as image:
            pixels = np.asarray(image.convert("RGB").resize((size, size)), np.float32)
        return (pixels - self.description["mean"]) / self.description["std"]

    def read(self, photo: bytes) -> tf.Tensor:
        """Return a JPEG file as float32 [size, size, 3], with TensorFlow."""
        return self._read(photo)

    def scores(self, pixels: tf.Tensor) -> np.ndarray:
        """Return scores float32 [batch, classes] for pixels float32 [batch, size, size, 3]."""
        return self._scores(pixels).numpy()

    def classify(self, photo: bytes) -> str:
        """Return the label of a JPEG file, in one TensorFlow call."""
        return self.label(self._classify(photo).numpy()[0])

    def label(self, scores: np.ndarray) -> str:
        """Return the name of the class with the largest score; `scores` is float32 [classes]."""
        return self.description["labels"][int(scores.argmax())]

    def _read_in_graph(self, photo: tf.Tensor) -> tf.Tensor:
        size = self.description["size"]
        pixels = tf.image.resize(tf.cast(tf.io.decode_jpeg(photo, channels=3), tf.float32), (size, size))
        return (tf.ensure_shape(pixels, (size, size, 3)) - self.description["mean"]) / self.description["std"]
