"""Small networks with the parts of common classifiers, with seeded weights, and images for them.

    python int8_networks.py OUT.npz
    python int8_networks.py OUT.npz VERSION PHOTO

quantises one of them, and writes what it returns for batches of several sizes; or writes what a baked version returns
for a photo. Run with other environment variables, it shows whether other CPUs return the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from savedmodel_bakery.exporter.optimisation import Coverage, optimise_int8
from savedmodel_bakery.exporter.optimisation.int8 import units
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS

SIDE = 16
CLASSES = 10
BATCHES = (1, 2, 3, 5, 8, 13, 32)


def images(count: int, seed: int = 0) -> np.ndarray:
    """Return smooth images, float32 [count, SIDE, SIDE, 3]."""
    coarse = np.random.default_rng(seed).normal(size=(count, 5, 5, 3))
    return np.asarray(tf.image.resize(coarse, [SIDE, SIDE], "bicubic"), np.float32)


def trace(model: Any) -> Any:
    spec = tf.TensorSpec([None, *model.input_shape[1:]], tf.float32, name="normalised")
    return tf.function(lambda batch: model(batch, training=False), autograph=False).get_concrete_function(spec)


def int8_always_gains() -> Any:
    """Return a context in which int8 counts as a gain for operations as small as those of these networks."""
    return mock.patch.multiple(units, _PER_OPERATION=0, _PER_NUMBER=0)


def quantised(model: Any, calibration: np.ndarray) -> tuple[Any, Any, Coverage]:
    """Return a model as a function before and after it is quantised, and how much of it is."""
    before = trace(model)
    with int8_always_gains():
        after, variables, coverage = optimise_int8(before, OPTIMISATIONS, calibration)
    before.kept_alive, after.kept_alive = model, variables
    return before, after, coverage


def classifier(body: Callable[[Any], Any]) -> Any:
    """Return a model with this body between a stem and a dense layer; its weights are as large as after training."""
    keras.utils.set_random_seed(0)
    image = keras.Input((SIDE, SIDE, 3))
    stem = block(image, 16, 3)
    pooled = layers.GlobalAveragePooling2D()(body(stem))
    return keras.Model(image, layers.Dense(CLASSES, activation="softmax", kernel_initializer="he_normal")(pooled))


def block(tensor: Any, filters: int, kernel: int, activation: Any = "relu6", **options: Any) -> Any:
    """Add a convolution, a batch norm with statistics as after training, and an activation."""
    options = {"padding": "same", "use_bias": False, "kernel_initializer": "he_normal", **options}
    made = norm(layers.Conv2D(filters, kernel, **options)(tensor))
    return made if activation is None else layers.Activation(activation)(made)


def depthwise(tensor: Any, kernel: int, activation: Any = "relu6", **options: Any) -> Any:
    options = {"padding": "same", "use_bias": False, "depthwise_initializer": "he_normal", **options}
    return layers.Activation(activation)(norm(layers.DepthwiseConv2D(kernel, **options)(tensor)))


def norm(tensor: Any) -> Any:
    return layers.BatchNormalization(
        gamma_initializer=keras.initializers.RandomUniform(0.8, 1.2),
        beta_initializer=keras.initializers.RandomUniform(-0.2, 0.4),
    )(tensor)


def inverted_residual(tensor: Any) -> Any:
    """MobileNetV2."""
    first = block(depthwise(block(tensor, 32, 1), 3), 16, 1, None)
    second = layers.Add()([first, block(depthwise(block(first, 32, 1), 5), 16, 1, None)])
    padded = layers.ZeroPadding2D(((0, 1), (0, 1)))(block(second, 32, 1))
    return block(depthwise(padded, 3, strides=2, padding="valid"), 24, 1, None)


def residual(tensor: Any) -> Any:
    """ResNet: convolution, addition, relu; the second shortcut is a convolution too."""
    for filters in (16, 24):
        inner = block(block(tensor, 8, 1, "relu"), 8, 3, "relu")
        shortcut = tensor if filters == 16 else block(tensor, filters, 1, None)
        tensor = layers.ReLU()(layers.Add()([shortcut, block(inner, filters, 1, None)]))
    return tensor


def branches(tensor: Any) -> Any:
    """InceptionV3: pools and concatenations."""
    pooled = block(layers.AveragePooling2D(3, strides=1, padding="same")(tensor), 8, 1, "relu")
    wide = block(block(tensor, 8, (1, 5), "relu"), 8, (5, 1), "relu")
    joined = layers.Concatenate()([pooled, wide, block(tensor, 16, 1, "relu")])
    reduced = block(joined, 16, 3, "relu", strides=2, padding="valid")
    return layers.Concatenate()([reduced, layers.MaxPooling2D(3, strides=2)(joined)])


def gated(tensor: Any) -> Any:
    """EfficientNet: swish, padding of numbers below 0, and a gate."""
    inner = depthwise(block(tensor, 32, 1, "swish"), 5, "swish", strides=2)
    gate = layers.Conv2D(8, 1, activation="swish")(layers.GlobalAveragePooling2D(keepdims=True)(inner))
    gate = layers.Conv2D(32, 1, activation="sigmoid")(gate)
    return block(layers.Multiply()([inner, gate]), 16, 1, None)


def hard_swish(tensor: Any) -> Any:
    """MobileNetV3."""
    return block(depthwise(block(tensor, 32, 1, "hard_swish"), 3, "hard_swish"), 24, 1, "hard_swish")


def dense_block(tensor: Any) -> Any:
    """DenseNet: norms before convolutions, and concatenations of numbers below 0."""
    for _ in range(2):
        inner = block(layers.ReLU()(norm(tensor)), 16, 1, "relu")
        tensor = layers.Concatenate()([tensor, layers.Conv2D(8, 3, padding="same")(inner)])
    return layers.ReLU()(norm(tensor))


def unusual(tensor: Any) -> Any:
    """An odd number of channels, dilations, and an even kernel."""
    odd = block(tensor, 9, 3, "relu")
    return block(block(odd, 12, 3, "relu", dilation_rate=2), 8, 4, "relu", strides=2)


def broadcast_channels(tensor: Any) -> Any:
    """Spatial attention: features, and one number per pixel, are added."""
    return block(layers.Add()([block(tensor, 1, 3, None), block(tensor, 16, 3, None)]), 16, 3)


def broadcast_rows(tensor: Any) -> Any:
    """Strip pooling: a row and a column of features are added."""
    row = layers.AveragePooling2D((SIDE, 1))(tensor)
    column = layers.AveragePooling2D((1, SIDE))(tensor)
    return block(layers.Add()([block(row, 16, 3, None), block(column, 16, 3, None)]), 16, 3)


def attention(tensor: Any) -> Any:
    """A layer of a transformer, in which a row of numbers stands for a pixel, and a dense layer as Keras 2 has it."""
    height, width, channels = tensor.shape[1:]
    rows = layers.Dense(64)(layers.Reshape((height * width, channels))(tensor))
    attended = layers.MultiHeadAttention(4, 16)(layers.LayerNormalization()(rows), layers.LayerNormalization()(rows))
    rows = layers.Add()([rows, attended])
    wide = layers.Dense(96, activation="gelu")(layers.LayerNormalization()(rows))
    rows = layers.Add()([rows, layers.Dense(64)(wide)])
    kernel = np.random.default_rng(0).normal(0, 0.2, (64, 4, 8)).astype(np.float32)
    heads = layers.Lambda(lambda each: tf.einsum("bnc,cde->bnde", each, kernel))(rows)
    return layers.Reshape((height, width, 32))(heads)


BODIES = {
    body.__name__: body
    for body in (
        *(inverted_residual, residual, branches, gated, hard_swish, dense_block, unusual),
        *(broadcast_channels, broadcast_rows, attention),
    )
}


def small() -> Any:
    """Return a model to bake."""
    return classifier(inverted_residual)


def varied() -> Any:
    """Return a model to bake, with all kinds of layers."""
    return classifier(everything)


def everything(tensor: Any) -> Any:
    """All of them, one after the other."""
    for body in (inverted_residual, residual, branches, gated, attention, unusual):
        tensor = block(body(tensor), 16, 1)
    return tensor


def main() -> None:
    out, *version_and_photo = sys.argv[1:]
    if version_and_photo:
        version, photo = version_and_photo
        answers = tf.saved_model.load(version).signatures["top_k"](image=tf.constant([Path(photo).read_bytes()]))
        np.savez(out, class_ids=answers["class_ids"], scores=answers["scores"])
    else:
        _, network, _ = quantised(varied(), images(16))
        np.savez(out, **{str(count): network(tf.constant(images(count, seed=count))) for count in BATCHES})


if __name__ == "__main__":
    main()
