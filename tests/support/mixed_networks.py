"""A network with two images, numbers, text and an id, and its scores for pictures of one colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

SIDE = 8
SECOND_SIDES = 4, 6
LABELS = ("a", "b", "c")
RECIPE = {
    "source_input": "left,right",
    "outputs": "logits",
    "crop": "none",
    "resize": "bilinear",
    "antialias": False,
    "channels": "RGB",
    "image_2": {"crop": "letterbox", "channels": "BGR"},
}
Colour = tuple[float, float, float]


def pairs() -> Any:
    """Return the network, which scales pixels itself; its weights are the same in each process."""
    keras.utils.set_random_seed(7)
    left, right = keras.Input((SIDE, SIDE, 3), name="left"), keras.Input((*SECOND_SIDES, 3), name="right")
    tab, store = keras.Input((2,), name="tab"), keras.Input((1,), dtype="int32", name="store")
    text = keras.Input((), dtype="string", name="text")
    number = keras.layers.StringLookup(vocabulary=["a", "red", "blue"])(text)  # a table
    embedded = keras.layers.Embedding(4, 2, embeddings_initializer="orthogonal")(number)
    of_store = keras.layers.Flatten()(keras.layers.Embedding(3, 2, embeddings_initializer="orthogonal")(store))
    pooled = [keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(each)) for each in (left, right)]
    features = keras.layers.Concatenate()([*pooled, tab, embedded, of_store])
    return keras.Model([tab, left, text, right, store], keras.layers.Dense(len(LABELS))(features))


def expected_scores(
    model: Any, colours: Sequence[Colour], seconds: Sequence[Colour], others: Mapping[str, Any]
) -> np.ndarray:
    """Return the probabilities [pictures, labels] by the network itself for pictures of these colours."""
    left, right = (
        np.array(each, np.float32)[:, np.newaxis, np.newaxis] + np.zeros((1, *sides, 1), np.float32)
        for each, sides in ((colours, (SIDE, SIDE)), (seconds, SECOND_SIDES))
    )
    arrays = [others["tab"], left, others["text"], right, others["store"]]
    logits = model([tf.constant(array) for array in arrays], training=False)
    return np.asarray(tf.nn.softmax(logits))
