"""Quantised networks: the codes of each operation, which operations are quantised, and how much outputs differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import int8_networks
import keras
import numpy as np
import pytest
import tensorflow as tf
from int8_networks import BATCHES, BODIES, SIDE, block, classifier, images, int8_always_gains, quantised, trace
from keras import layers
from numpy.lib.stride_tricks import sliding_window_view

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation import optimise_int8
from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.optimisation.folding import fold_constants
from savedmodel_bakery.exporter.optimisation.inlining import flatten
from savedmodel_bakery.exporter.optimisation.int8 import units
from savedmodel_bakery.exporter.optimisation.int8.codes import Range, quantise_depthwise_kernel, quantise_kernel
from savedmodel_bakery.exporter.optimisation.int8.quantise import quantise
from savedmodel_bakery.exporter.optimisation.optimise import drop_dead_operations
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS

QUANTISED = ("_FusedQuantizedConv2D", "_FusedQuantizedDepthwiseConv2D", "_QuantizedMatMul")
COSTS = {name: vars(units)[name] for name in ("_PER_OPERATION", "_PER_NUMBER")}


@pytest.fixture(autouse=True)
def _int8_always_gains() -> Iterator[None]:
    with int8_always_gains():
        yield


def operations(function: Any) -> Counter[str]:
    """Count the operations, including those of called functions."""
    graph_def = function.graph.as_graph_def()
    called = (node for each in graph_def.library.function for node in each.node_def)
    return Counter(node.op for node in (*graph_def.node, *called))


def node_of(graph: FlatGraph, *operations: str) -> Any:
    (node,) = [node for node in graph.nodes.values() if node.op in operations]
    return node


def constant(graph: FlatGraph, name: str) -> np.ndarray:
    return np.asarray(tf.make_ndarray(graph.nodes[name].attr["value"].tensor))


def with_one_layer(model: Any, batch: np.ndarray) -> FlatGraph:
    """Return the graph of a model after it is quantised, which changes one layer."""
    graph = flatten(trace(model))
    assert graph is not None
    drop_dead_operations(graph)
    fold_constants(graph)
    assert 1 == quantise(graph, batch).layers
    graph.prune()
    return graph


SINGLE: dict[str, Callable[[Any], Any]] = {
    "1 × 1": lambda tensor: layers.Conv2D(16, 1, activation="relu")(tensor),
    "3 × 3, padded": lambda tensor: layers.Conv2D(16, 3, padding="same", activation="relu")(tensor),
    "strides": lambda tensor: layers.Conv2D(16, 3, strides=2, padding="same", activation="relu6")(tensor),
    "linear": lambda tensor: layers.Conv2D(16, 3)(tensor),
    "a Pad before it": lambda tensor: layers.Conv2D(16, 3)(layers.ZeroPadding2D(((1, 0), (0, 2)))(tensor)),
    "depthwise": lambda tensor: layers.DepthwiseConv2D(3, activation="relu")(tensor),
    "depthwise, padded": lambda tensor: layers.DepthwiseConv2D(5, strides=2, padding="same")(tensor),
}


@pytest.mark.parametrize("lowest", [0.0, -1.0], ids=["from 0", "below 0"])
@pytest.mark.parametrize("layer", SINGLE.values(), ids=SINGLE)
def test_the_codes_of_a_convolution(layer: Callable[[Any], Any], lowest: float) -> None:
    """They are those of integer arithmetic in NumPy; a sum halfway between two codes may get either."""
    keras.utils.set_random_seed(1)
    image = keras.Input((9, 9, 8))
    model = keras.Model(image, layers.Dense(3)(layers.Flatten()(layer(image))))
    batch = np.random.default_rng(0).uniform(lowest, 2, (4, 9, 9, 8)).astype(np.float32)
    graph = with_one_layer(model, batch)
    quantised_input = node_of(graph, "QuantizeV2")
    convolution = node_of(graph, *QUANTISED[:2])
    _, kernel, bias, _, width_in, _, max_filter, _, width_out = convolution.input
    step_in, step_out = constant(graph, width_in) / 255, constant(graph, width_out) / 255
    # Before the codes, where 0 is not the code of 0.
    pads = [node for node in graph.nodes.values() if node.op == "Pad"]
    amounts = constant(graph, pads[0].input[1]) if pads else np.zeros((4, 2), int)
    assert (not pads) or lowest < 0
    codes = np.round((np.pad(batch, amounts) - constant(graph, quantised_input.input[1])) / step_in).clip(0, 255)
    explicit = np.array(convolution.attr["explicit_paddings"].list.i or [0] * 8).reshape(4, 2)
    sums = integer_convolution(
        np.pad(codes.astype(np.int64), explicit),
        constant(graph, kernel).astype(np.int64),
        convolution.attr["strides"].list.i[1],
        convolution.op,
    )
    scales = step_in * constant(graph, max_filter) / 127
    expected = np.round((sums * scales + constant(graph, bias)) / step_out).clip(0, 255)
    (actual,) = graph.function([convolution.name], lambda tensor: tf.cast(tensor, tf.int32))(tf.constant(batch))
    assert expected.shape == actual.shape
    assert 1 >= np.abs(expected - actual).max()
    assert 0.999 <= np.mean(expected == actual)
    assert 0.6 >= np.mean((expected == 0) | (expected == 255))


@pytest.mark.parametrize("lowest", [0.0, -1.0], ids=["from 0", "below 0"])
@pytest.mark.parametrize("use_bias", [True, False], ids=["bias", "no bias"])
def test_the_numbers_of_a_product(use_bias: bool, lowest: float) -> None:
    """They are those of integer arithmetic in NumPy."""
    keras.utils.set_random_seed(1)
    rows = keras.Input((9, 9, 8))
    dense = layers.Conv2D(16, 1, use_bias=use_bias, bias_initializer="random_normal")
    model = keras.Model(rows, layers.Dense(3)(layers.Flatten()(dense(rows))))
    batch = np.random.default_rng(0).uniform(lowest, 2, (4, 9, 9, 8)).astype(np.float32)
    graph = with_one_layer(model, batch)
    product = node_of(graph, "_QuantizedMatMul")
    _, kernel, _, _, width, _, max_weight = product.input
    low, step = constant(graph, node_of(graph, "QuantizeV2").input[1]), constant(graph, width) / 255
    codes = np.round((batch.reshape(-1, 8) - low) / step).clip(0, 255)
    weights = constant(graph, kernel).astype(int) * (constant(graph, max_weight) / 127)
    expected = (codes * step + low) @ weights + (dense.bias.numpy() if use_bias else 0)
    (actual,) = graph.function([product.name], tf.identity)(tf.constant(batch))
    np.testing.assert_allclose(expected, actual, atol=1e-4)
    np.testing.assert_allclose(weights, dense.kernel.numpy()[0, 0], atol=0.02)


def integer_convolution(codes: np.ndarray, weights: np.ndarray, stride: int, operation: str) -> np.ndarray:
    """Convolve int64 [batch, height, width, channels] without padding."""
    windows = sliding_window_view(codes, weights.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    formula = "bhwcij,ijco->bhwo" if operation == QUANTISED[0] else "bhwcij,ijcm->bhwc"
    return np.asarray(np.einsum(formula, windows, weights))


COUNTS = {
    "inverted_residual": {
        "_FusedQuantizedConv2D": 5,
        "_FusedQuantizedDepthwiseConv2D": 3,
        "_QuantizedMatMul": 1,
        "Conv2D": 1,
        "QuantizeV2": 1,
    },
    "residual": {"_FusedQuantizedConv2D": 6, "_QuantizedMatMul": 1, "Conv2D": 1, "QuantizeV2": 2, "Dequantize": 2},
    "branches": {
        "_FusedQuantizedConv2D": 5,
        "QuantizedAvgPool": 1,
        "QuantizedMaxPool": 1,
        "ConcatV2": 2,
        "QuantizeV2": 1,
    },
    "gated": {"_QuantizedMatMul": 4, "_FusedQuantizedDepthwiseConv2D": 1, "Conv2D": 1, "Pad": 1, "QuantizeV2": 5},
    "hard_swish": {"_QuantizedMatMul": 2, "_FusedQuantizedDepthwiseConv2D": 1, "Conv2D": 1, "Pad": 1},
    "attention": {"_QuantizedMatMul": 8, "Conv2D": 1, "QuantizeV2": 7, "Dequantize": 0},
    "dense_block": {"_FusedQuantizedConv2D": 4, "Conv2D": 1},
    "unusual": {"_FusedQuantizedConv2D": 3, "Conv2D": 1, "Pad": 0},
    "broadcast_channels": {"_FusedQuantizedConv2D": 3, "Conv2D": 1, "AddV2": 3},
    "broadcast_rows": {"_FusedQuantizedConv2D": 3, "Conv2D": 1, "AddV2": 3},
}


def test_weights_that_are_not_finite_are_rejected() -> None:
    model = classifier(BODIES["residual"])
    kernel = next(weight for weight in model.weights if weight.shape == (3, 3, 8, 8))
    kernel.assign(np.full(kernel.shape, np.nan))
    with pytest.raises(SourceError, match="cannot quantise the network"):
        quantised(model, images(10))


@pytest.mark.parametrize("name", BODIES)
def test_outputs_are_close_and_do_not_depend_on_the_batch(name: str) -> None:
    before, after, coverage = quantised(classifier(BODIES[name]), images(32))
    counts = operations(after)
    assert COUNTS[name] == {operation: counts[operation] for operation in COUNTS[name]}
    assert coverage.layers == sum(counts[operation] for operation in QUANTISED)
    assert 0.5 < coverage.share < 1
    evaluated = images(max(BATCHES), seed=1)
    expected, actual = np.asarray(before(tf.constant(evaluated))), np.asarray(after(tf.constant(evaluated)))
    np.testing.assert_allclose(expected, actual, atol=0.05)
    assert 0 < np.abs(expected - actual).max()
    for count in BATCHES:
        np.testing.assert_allclose(actual[:count], after(tf.constant(evaluated[:count])), atol=1e-5)


def read_later(tensor: Any) -> Any:
    """Another branch reads the operand too, maybe after the convolution."""
    first = block(tensor, 16, 1, None)
    added = layers.Add()([first, block(block(first, 16, 1), 16, 1, None)])
    return block(layers.Concatenate()([added, block(first, 16, 3)]), 8, 1)


def read_by_itself(tensor: Any) -> Any:
    """The convolution reads the operand while it would write over it."""
    first = block(tensor, 16, 1, None)
    return block(layers.Add()([first, block(first, 16, 3, None)]), 8, 1)


def padded_by_itself(tensor: Any) -> Any:
    """The same with the padding in an operation of its own, which the convolution replaces."""
    first = block(tensor, 16, 1, "relu")
    return block(layers.Add()([first, block(layers.ZeroPadding2D()(first), 16, 3, None, padding="valid")]), 8, 1)


def padded_and_read_later(tensor: Any) -> Any:
    """Two convolutions replace the same Pad, one of which may run after the operand is overwritten."""
    first = block(tensor, 16, 1, "relu")
    padded = layers.ZeroPadding2D()(first)
    added = layers.Add()([first, block(block(padded, 16, 3, padding="valid"), 16, 1, None)])
    return block(layers.Concatenate()([added, block(padded, 16, 3, padding="valid")]), 8, 1)


def padded_and_kept(tensor: Any) -> Any:
    """A convolution replaces the Pad, but an operation in float32 needs it, and reads the operand maybe later."""
    first = block(tensor, 16, 1, "relu")
    padded = layers.ZeroPadding2D()(first)
    added = layers.Add()([first, block(block(padded, 16, 3, padding="valid"), 16, 1, None)])
    return block(layers.Concatenate()([added, layers.Activation("tanh")(layers.Cropping2D(1)(padded))]), 8, 1)


@pytest.mark.parametrize("body", [read_later, read_by_itself, padded_by_itself, padded_and_read_later, padded_and_kept])
def test_an_operand_that_is_still_needed_is_not_overwritten(body: Callable[[Any], Any]) -> None:
    before, after, _ = quantised(classifier(body), images(16))
    assert 0 == fused_additions(after)
    np.testing.assert_allclose(before(tf.constant(images(3))), after(tf.constant(images(3))), atol=0.05)


def test_an_operand_that_was_padded_before_is_overwritten() -> None:
    def body(tensor: Any) -> Any:
        first = block(tensor, 16, 1, "relu")
        inner = block(layers.ZeroPadding2D()(first), 16, 3, padding="valid")
        return block(layers.Add()([first, block(inner, 16, 1, None)]), 8, 1)

    before, after, _ = quantised(classifier(body), images(16))
    assert 1 == fused_additions(after)
    np.testing.assert_allclose(before(tf.constant(images(3))), after(tf.constant(images(3))), atol=0.05)


def test_additions_are_fused() -> None:
    _, after, _ = quantised(classifier(lambda tensor: block(int8_networks.residual(tensor), 8, 1)), images(8))
    assert 1 == fused_additions(after)


@pytest.mark.parametrize("side", [SIDE, SIDE // 2], ids=["global", "in parts"])
def test_global_average_pools_stay_float32(side: int) -> None:
    """Also as AveragePooling2D over the whole image."""
    _, after, _ = quantised(classifier(lambda tensor: layers.AveragePooling2D(side)(block(tensor, 16, 1))), images(8))
    counts = operations(after)
    assert (side < SIDE, side == SIDE) == (counts["QuantizedAvgPool"], counts["AvgPool"])


def fused_additions(function: Any) -> int:
    convolutions = [node for node in function.graph.get_operations() if node.type == QUANTISED[0]]
    return sum(b"Sum" in node.get_attr("fused_ops") for node in convolutions)


def test_no_pair_of_input_channels_overflows_16_bits() -> None:
    """CPUs without VNNI add the products of two neighbouring channels in 16 bits."""
    random = np.random.default_rng(0)
    for channels in (8, 9):
        kernel = random.normal(size=(3, 3, channels, 50)).astype(np.float32)
        kernel[:, :, 1] = kernel[:, :, 0]  # the worst case
        kernel[..., 0] = 0
        codes = quantise_kernel(kernel, "name").codes.astype(int)
        flat = np.concatenate([codes.reshape(-1, 50), np.zeros((1, 50), int)])
        pairs = np.concatenate([flat[0:-1:2] + flat[1::2]]) if channels % 2 else codes[:, :, 0::2] + codes[:, :, 1::2]
        assert 2**15 > 255 * np.abs(pairs).max()
        assert 120 < np.abs(pairs).max()


def test_quantised_weights_are_close() -> None:
    random = np.random.default_rng(0)
    kernel = random.normal(size=(3, 3, 8, 16)).astype(np.float32)
    made = quantise_kernel(kernel, "name")
    assert np.abs(kernel - made.codes * made.scales).max() <= made.scales.max()
    np.testing.assert_allclose((made.codes * made.scales).sum((0, 1, 2)), made.sums)
    kernel = random.normal(size=(3, 3, 8, 1)).astype(np.float32)
    made = quantise_depthwise_kernel(kernel, "name")
    assert np.abs(kernel[..., 0] - made.codes[..., 0] * made.scales).max() <= made.scales.max() / 2
    assert 127 == np.abs(made.codes).max()


@pytest.mark.parametrize(
    "ends", [(0.0, 6.0), (-0.375, 5.0), (-3.0, 0.0), (1.0, 2.0), (0.0, 0.0), (-1e-5, 1e-5)], ids=str
)
def test_a_range_has_a_code_for_zero(ends: tuple[float, float]) -> None:
    found = Range.of(*ends)
    step = found.width / 255
    assert found.low - step / 2 <= ends[0]
    assert ends[1] <= found.high + step / 2
    assert abs(round(found.low / step) - found.low / step) < 1e-6
    assert 0.01 < found.width


@pytest.mark.parametrize(
    "stack",
    [
        [layers.Flatten(), layers.Dense(2)],
        [layers.Conv2D(4, 3, padding="same"), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(2)],
        [layers.Conv2D(8, 3), layers.Conv2D(8, 3)],
    ],
    ids=["no convolution", "few channels", "the last operation"],
)
def test_a_network_without_such_convolutions_is_rejected(stack: list[Any]) -> None:
    model = keras.Sequential([keras.Input((SIDE, SIDE, 3)), *stack])
    with pytest.raises(SourceError, match=r"^precision int8 has no effect on this network"):
        optimise_int8(trace(model), OPTIMISATIONS, images(2))


def test_large_weights_are_variables() -> None:
    """TensorFlow copies constants often when it prepares a signature; reading a variable costs time in each run."""
    stack = [layers.Conv2D(64, 1), layers.Conv2D(64, 3), layers.Conv2D(8, 1), layers.Flatten(), layers.Dense(2)]
    network, variables, _ = optimise_int8(
        trace(keras.Sequential([keras.Input((SIDE, SIDE, 3)), *stack])), OPTIMISATIONS, images(2)
    )
    assert [(3, 3, 64, 64)] == [variable.shape for variable in variables if variable.dtype == tf.int8]
    assert 1 == operations(network)["Bitcast"]


DENSE: dict[str, tuple[Callable[[], list[Any]], int, bool]] = {
    "an image": (lambda: [layers.Dense(5)], 16 * 16 * 16 * 5, True),
    "rows": (lambda: [layers.Reshape((256, 16)), layers.Dense(5)], 256 * 16 * 5, True),
    "by formula": (
        lambda: [layers.Reshape((256, 16)), layers.EinsumDense("abc,cd->abd", (256, 5))],
        256 * 16 * 5,
        True,
    ),
    "Einsum": (
        lambda: [layers.Lambda(lambda tensor: tf.einsum("bhwc,dc->bhwd", tensor, tf.ones((5, 16))))],
        16 * 16 * 16 * 5,
        False,
    ),
    "transposed": (
        lambda: [layers.Lambda(lambda tensor: tf.linalg.matmul(tensor, tf.ones((1, 1, 5, 16)), transpose_b=True))],
        16 * 16 * 16 * 5,
        False,
    ),
    "attention": (
        lambda: [layers.Lambda(lambda tensor: tf.linalg.matmul(tensor, tensor, transpose_b=True)), layers.Dense(5)],
        16 * 16 * 16 * 5,
        True,
    ),
    "a vector": (lambda: [layers.Flatten(), layers.Dense(5)], 16 * 16 * 16 * 5, True),
}


@pytest.mark.parametrize(("stack", "dense", "is_quantised"), DENSE.values(), ids=DENSE)
def test_the_share_counts_dense_layers_once_per_row(
    stack: Callable[[], list[Any]], dense: int, is_quantised: bool
) -> None:
    """Products of activations with each other don't count; those with transposed weights stay float32."""
    stem = [keras.Input((SIDE, SIDE, 3)), layers.Conv2D(8, 1), layers.Conv2D(16, 1)]
    model = keras.Sequential([*stem, *stack(), layers.Flatten(), layers.Dense(2)])
    kernels = [np.prod(weight.shape) for weight in model.weights]
    _, _, coverage = optimise_int8(trace(model), OPTIMISATIONS, images(2))
    convolution = 16 * 16 * 8 * 16
    total = 16 * 16 * 3 * 8 + convolution + dense + kernels[-2]
    assert coverage.share == pytest.approx((convolution + dense * is_quantised) / total)


def test_small_operations_stay_float32() -> None:
    """Their codes would cost more than they save; each of these layers has at most 1.6 million multiplications."""
    with (
        mock.patch.multiple(units, **COSTS),
        pytest.raises(SourceError, match=r"^precision int8 has no effect on this network: no convolution or"),
    ):
        optimise_int8(trace(classifier(BODIES["attention"])), OPTIMISATIONS, images(2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf], ids=str)
def test_activations_that_are_not_finite_are_rejected(bad: float) -> None:
    calibration = images(10).copy()
    calibration[9, 3, 4, 0] = bad
    stack = [layers.Conv2D(8, 1), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(2)]
    with pytest.raises(SourceError, match=r"^cannot quantise the network: its tensor \S+ has values that are not"):
        optimise_int8(trace(keras.Sequential([keras.Input((SIDE, SIDE, 3)), *stack])), OPTIMISATIONS, calibration)
