"""A baked model whose scores are the colour of each image and the number of images in the network's batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.recipe import Answers, Batching, Preprocessing, Recipe, Source
from savedmodel_bakery.exporter.servable_module import ServableModule

SIDE = 8
CLASSES = ["red", "green", "blue", "batch size"]


class Network(tf.Module):
    """Returns the mean of each channel, 0..1, times `weight`, and the number of images in the batch."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self._weight = tf.Variable(weight)

    def __call__(self, normalised: Any) -> Any:
        rows = tf.shape(normalised)[0]
        batch_size = tf.fill([rows, 1], tf.cast(rows, tf.float32))
        return tf.concat([tf.reduce_mean(normalised, [1, 2]) * self._weight, batch_size], axis=1)


def save(path: Path, *, weight: float = 1.0, **batching: Any) -> Path:
    """Write the model to `path`, which must not exist; keywords are fields of its `Batching`."""
    recipe = Recipe(
        Source(model="batch_size_model"),
        Answers(labels="names.txt", outputs="probabilities"),
        Preprocessing(size=(SIDE, SIDE), crop="none", resize="bilinear", antialias=False, scale="0..1", channels="RGB"),
        batching=Batching(**batching),
    )
    ServableModule(Network(weight), recipe, CLASSES).save(path)
    return path
