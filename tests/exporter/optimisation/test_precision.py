"""Networks in 16-bit precision: which operations are lowered, which are not, and how much the outputs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation import optimise
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS

SIDE = 8
SPEC = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="normalised")
# The distance between neighbouring numbers at 1, times a few layers.
ATOL = {"bfloat16": 0.05, "float16": 0.005}


def network() -> Any:
    """A model with the usual parts of classifiers: norms, a residual, a concatenation, padding and pooling."""
    keras.utils.set_random_seed(0)
    image = keras.Input((SIDE, SIDE, 3))
    stem = layers.ReLU(6)(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(image)))
    branch = layers.Conv2D(8, 1, activation="swish")(layers.ZeroPadding2D()(layers.DepthwiseConv2D(3)(stem)))
    both = layers.Concatenate()([layers.Add()([stem, branch]), stem])
    pooled = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(both))
    hidden = layers.Dense(16, activation="relu")(pooled)
    return keras.Model(image, layers.Dense(5, activation="softmax")(hidden))


def trace(model: Any) -> Any:
    return tf.function(lambda images: model(images, training=False), autograph=False).get_concrete_function(SPEC)


def dtypes_of(function: Any, *operations: str) -> list[str]:
    """The dtypes of these operations, in the order of the graph."""
    nodes = [node for called in function.graph.as_graph_def().library.function for node in called.node_def]
    return [
        tf.as_dtype(node.attr["T"].type).name
        for node in (*function.graph.as_graph_def().node, *nodes)
        if node.op in operations
    ]


@pytest.mark.parametrize("precision", ATOL)
@pytest.mark.parametrize("steps", [OPTIMISATIONS, ()], ids=["optimised", "not optimised"])
def test_all_but_the_last_product_are_lowered_and_outputs_are_close(precision: str, steps: tuple[str, ...]) -> None:
    before = trace(network())
    after, variables = optimise(before, steps, precision)
    linear = dtypes_of(after, "Conv2D", "DepthwiseConv2dNative", "MatMul")
    assert ["float32", *[precision] * 4] == sorted(linear, key=lambda name: name != "float32")
    assert {precision} == set(dtypes_of(after, "Relu6", "Relu", "ConcatV2", "MaxPool", "Mean", "Pad"))
    assert ["float32"] == dtypes_of(after, "Softmax")
    kernels = [variable.dtype.name for variable in variables if len(variable.shape) > 1]
    assert [precision] * 4 + ["float32"] == sorted(kernels, key=lambda name: name == "float32")
    images = np.random.default_rng(0).normal(size=(7, SIDE, SIDE, 3)).astype(np.float32)
    for batch in (images, images[:1]):
        scores = after(batch)
        assert tf.float32 == scores.dtype
        np.testing.assert_allclose(before(batch), scores, atol=ATOL[precision])
    assert 0 < np.abs(before(images) - after(images)).max()


def test_unknown_operations_are_not_lowered() -> None:
    """A norm that can't be folded is between two convolutions."""
    image = keras.Input((SIDE, SIDE, 3))
    tensor = layers.Conv2D(4, 1, activation="relu")(image)
    model = keras.Model(image, layers.Conv2D(2, 1)(layers.Conv2D(4, 1)(layers.GroupNormalization(2)(tensor))))
    before = trace(model)
    after, _ = optimise(before, OPTIMISATIONS, "bfloat16")
    assert ["bfloat16", "bfloat16", "float32"] == sorted(dtypes_of(after, "Conv2D", "MatMul"))
    assert {"float32"} == set(dtypes_of(after, "Rsqrt", "SquaredDifference"))
    images = np.random.default_rng(0).normal(size=(2, SIDE, SIDE, 3)).astype(np.float32)
    np.testing.assert_allclose(before(images), after(images), atol=0.1)


def test_a_network_with_a_single_product_is_rejected() -> None:
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), layers.Flatten(), layers.Dense(2)])
    with pytest.raises(SourceError, match=r"^precision float16 has no effect on this network"):
        optimise(trace(model), OPTIMISATIONS, "float16")


def test_swish_of_a_rewritten_network_can_be_saved(tmp_path: Path) -> None:
    """Keras defines its own gradient for swish."""
    module = tf.Module()
    module.serve, module.kept_alive = optimise(trace(network()), OPTIMISATIONS, "bfloat16")
    tf.saved_model.save(module, tmp_path)
    images = np.random.default_rng(0).normal(size=(2, SIDE, SIDE, 3)).astype(np.float32)
    np.testing.assert_array_equal(module.serve(images), tf.saved_model.load(tmp_path).serve(images))
