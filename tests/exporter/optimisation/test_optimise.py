"""Optimised networks return the same outputs; which operations are removed from their graphs, and which must stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from savedmodel_bakery.exporter.optimisation import optimise
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS
from savedmodel_bakery.exporter.sources import read_network

tf1 = tf.compat.v1
SIDE = 6
# Operations of a batch norm in any of its forms, and those that compute its scale and shift.
NORM = {"Mul", "Sub", "Rsqrt", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}


class Optimised(NamedTuple):
    """A network before and after optimisation, as concrete functions, and the variables that the second reads."""

    before: Any
    after: Any
    variables: list[Any]

    def operations(self) -> Counter[str]:
        return operations(self.after)

    def weights(self) -> list[tuple[int, ...]]:
        """Shapes of the variables that are read, which are saved, and of the vectors that are constants."""
        constants = [each.outputs[0] for each in self.after.graph.get_operations() if each.type == "Const"]
        vectors = [tensor for tensor in constants if tensor.shape.rank == 1 and tensor.dtype == tf.float32]
        return sorted(tuple(weight.shape) for weight in (*self.variables, *vectors))


def operations(function: Any) -> Counter[str]:
    """Count the operations, including those of called functions."""
    graph_def = function.graph.as_graph_def()
    called = (node for function in graph_def.library.function for node in function.node_def)
    return Counter(node.op for node in (*graph_def.node, *called))


def optimise_and_compare(call: Callable[[Any], Any], steps: tuple[str, ...] = OPTIMISATIONS) -> Optimised:
    """Trace and optimise a network, and check that its outputs stay the same."""
    images = np.random.default_rng(0).normal(size=(3, SIDE, SIDE, 3)).astype(np.float32)
    spec = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="normalised")
    before = tf.function(call, autograph=False).get_concrete_function(spec)
    optimised = Optimised(before, *optimise(before, steps))
    for batch in (images, images[:1]):
        np.testing.assert_allclose(optimised.before(batch), optimised.after(batch), rtol=1e-4, atol=1e-5)
    return optimised


def network_of(*stack: Any) -> Callable[[Any], Any]:
    image = keras.Input((SIDE, SIDE, 3))
    tensor = image
    for layer in stack:
        tensor = layer(tensor)
    return trained(keras.Model(image, tensor))


def trained(model: Any) -> Callable[[Any], Any]:
    """The model's inference, with weights as after training: none is 0 or 1, variances are positive."""
    random = np.random.default_rng(1)
    for weight in model.weights:
        values = random.normal(size=weight.shape)
        weight.assign(np.abs(values) + 0.5 if weight.name == "moving_variance" else values)
    return lambda images: model(images, training=False)


def conv(**options: Any) -> Any:
    return layers.Conv2D(4, 3, **options)


def norm(**options: Any) -> Any:
    return layers.BatchNormalization(**options)


FOLDED = {
    "convolution": ([conv(use_bias=False), norm()], [(3, 3, 3, 4), (4,)]),
    "convolution with a bias": ([conv(), norm()], [(3, 3, 3, 4), (4,)]),
    "with strides and padding": ([conv(strides=2, padding="same"), norm()], [(3, 3, 3, 4), (4,)]),
    "in groups": ([layers.Conv2D(6, 3, groups=3), norm()], [(3, 3, 1, 6), (6,)]),
    "depthwise": ([layers.DepthwiseConv2D(3), norm()], [(3,), (3, 3, 3, 1)]),
    "depthwise with a multiplier": ([layers.DepthwiseConv2D(3, depth_multiplier=2), norm()], [(3, 3, 3, 2), (6,)]),
    "separable": ([layers.SeparableConv2D(4, 3), norm()], [(3, 3, 3, 1), (3, 4), (4,)]),
    "dense": ([layers.Flatten(), layers.Dense(5), norm()], [(5,), (108, 5)]),
    "without scale": ([conv(), norm(scale=False)], [(3, 3, 3, 4), (4,)]),
    "without centre": ([conv(), norm(center=False)], [(3, 3, 3, 4), (4,)]),
    "without scale and centre": ([conv(), norm(scale=False, center=False)], [(3, 3, 3, 4), (4,)]),
    "two norms": ([conv(), norm(), norm()], [(3, 3, 3, 4), (4,)]),
    "a norm and a rescaling": ([conv(), norm(), layers.Rescaling(-2.0, 1.0)], [(3, 3, 3, 4), (4,)]),
    "after dropout": ([conv(), layers.Dropout(0.5), norm(), layers.ReLU()], [(3, 3, 3, 4), (4,)]),
}


@pytest.mark.parametrize(("stack", "weights"), FOLDED.values(), ids=FOLDED)
def test_a_batch_norm_is_folded_into_the_operation_before_it(stack: list[Any], weights: list[tuple[int, ...]]) -> None:
    """Its variables and the old kernel are dropped: each weight is there once."""
    optimised = optimise_and_compare(network_of(*stack))
    assert NORM & set(operations(optimised.before))
    assert not (NORM | {"AddV2", "StatefulPartitionedCall"}) & set(optimised.operations())
    assert weights == optimised.weights()


def used_twice() -> Any:
    """The convolution's own output is used too."""
    image = keras.Input((SIDE, SIDE, 3))
    filtered = conv()(image)
    return trained(keras.Model(image, layers.Concatenate()([filtered, norm()(filtered)])))


def shared_convolution() -> Any:
    """One convolution with two norms."""
    image = keras.Input((SIDE, SIDE, 3))
    shared = conv()
    turned = layers.ReLU()(image)
    return trained(keras.Model(image, layers.Add()([norm()(shared(image)), norm()(shared(turned))])))


class RowScale(layers.Layer):
    """Scales rows, not channels; there are as many."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[1], 1))

    def call(self, tensor: Any) -> Any:
        return tensor * self.scale


KEPT = {
    "after an activation": lambda: network_of(conv(activation="relu"), norm()),
    "before a convolution": lambda: network_of(norm(), conv(padding="same")),
    "of another axis": lambda: network_of(conv(), norm(axis=1)),
    "scale of rows": lambda: network_of(conv(), RowScale()),
    "output used twice": used_twice,
    "shared convolution": shared_convolution,
}


@pytest.mark.parametrize("network", KEPT.values(), ids=KEPT)
def test_other_norms_stay(network: Callable[[], Any]) -> None:
    """But their scale and shift are computed in advance."""
    optimised = optimise_and_compare(network())
    assert "Mul" in optimised.operations()
    assert "Rsqrt" not in optimised.operations()


def test_a_convolution_that_is_the_output_stays() -> None:
    """The output of the network counts as a use."""
    optimised = optimise_and_compare(network_of(conv()))
    assert 1 == optimised.operations()["BiasAdd"]
    variables = {id(variable) for variable in (*optimised.before.graph.variables, *optimised.variables)}
    assert 2 == len(variables)  # the kernel and the old bias: the new one is a constant


def test_a_saved_model_of_tensorflow_1(tmp_path: Path) -> None:
    """Every version of FusedBatchNorm, after identities, defaults and stopped gradients."""
    random = np.random.default_rng(0)
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.float32, [None, SIDE, SIDE, 3], "images")

        def variable(*shape: int) -> Any:
            values = np.abs(random.normal(size=shape)).astype(np.float32) + 0.5
            return tf1.Variable(values, use_resource=True)

        tensor = images
        for fuse in (tf.raw_ops.FusedBatchNorm, tf.raw_ops.FusedBatchNormV2, tf.raw_ops.FusedBatchNormV3):
            kernel = variable(3, 3, tensor.shape[-1], 4)
            with tf1.colocate_with(kernel.read_value()):
                filtered = tf.identity(tf.nn.conv2d(tensor, kernel, 1, "SAME"))
            numbers = {name: variable(4) for name in ("scale", "offset", "mean", "variance")}
            fused = fuse(x=tf1.placeholder_with_default(filtered, filtered.shape), **numbers, is_training=False)
            tensor = tf.stop_gradient(fused.y)
        signature = tf1.saved_model.predict_signature_def({"images": images}, {"sums": tf.reduce_sum(tensor, [1, 2])})
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(str(tmp_path / "tf1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={"serving_default": signature})
        builder.save()
    optimised = optimise_and_compare(read_network({"model": str(tmp_path / "tf1")}).call)
    assert not (NORM | {"PlaceholderWithDefault", "StopGradient"}) & set(optimised.operations())
    assert [(3, 3, 3, 4), (3, 3, 4, 4), (3, 3, 4, 4), (4,), (4,), (4,)] == optimised.weights()


def test_a_saved_model_of_tensorflow_2(tmp_path: Path) -> None:
    """Its functions are inlined."""
    image = keras.Input((SIDE, SIDE, 3))
    model = keras.Model(image, layers.GlobalAveragePooling2D()(norm()(conv()(image))))
    trained(model)
    model.export(tmp_path / "tf2", verbose=False)
    optimised = optimise_and_compare(read_network({"model": str(tmp_path / "tf2")}).call)
    assert {"Placeholder", "ReadVariableOp", "Conv2D", "BiasAdd", "Mean", "Const", "Identity", "NoOp"} == set(
        optimised.operations()
    )


def test_large_constants_of_a_source_become_variables() -> None:
    """As in a frozen graph; small constants stay in the graph."""
    kernel = np.random.default_rng(0).normal(size=(3, 3, 3, 32)).astype(np.float32)
    optimised = optimise_and_compare(
        lambda images: tf.nn.conv2d(images, kernel, 1, "SAME") + np.arange(32, dtype=np.float32)
    )
    assert [(3, 3, 3, 32), (32,)] == optimised.weights()
    optimised = optimise_and_compare(lambda images: tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME")) + np.float32(1))
    assert [(3, 3, 3, 32)] == optimised.weights()


def test_vectors_become_constants_unless_they_are_large() -> None:
    """Each signature has its own copy of a constant."""
    small, large = layers.Dense(1024), layers.Dense(2**13 + 1)
    optimised = optimise_and_compare(network_of(layers.GlobalAveragePooling2D(), small, large))
    assert {(3, 1024), (1024, 2**13 + 1), (2**13 + 1,)} == {tuple(variable.shape) for variable in optimised.variables}


ROW_OPERATIONS = {"MatMul", "BiasAdd", "Relu6", "Relu"}
PRODUCTS = {
    "convolution alone": ([layers.Conv2D(4, 1, use_bias=False)], [(3, 4)]),
    "with a bias": ([layers.Conv2D(4, 1)], [(3, 4), (4,)]),
    "with a norm and an activation": ([layers.Conv2D(4, 1), norm(), layers.ReLU(6)], [(3, 4), (4,)]),
    "with two activations": ([layers.Conv2D(4, 1), layers.ReLU(), layers.Activation("sigmoid")], [(3, 4), (4,)]),
    "with padding that changes nothing": ([layers.Conv2D(4, 1, padding="same")], [(3, 4), (4,)]),
    "two in a row": ([layers.Conv2D(4, 1), layers.Conv2D(2, 1)], [(2,), (3, 4), (4,), (4, 2)]),
}


@pytest.mark.parametrize(("stack", "weights"), PRODUCTS.values(), ids=PRODUCTS)
def test_a_1_by_1_convolution_becomes_a_matrix_product(stack: list[Any], weights: list[tuple[int, ...]]) -> None:
    """Bias and activation are applied to its rows, where TensorFlow fuses them with the product."""
    optimised = optimise_and_compare(network_of(*stack))
    assert "Conv2D" not in optimised.operations()
    assert weights == optimised.weights()
    ranks = [
        each.outputs[0].shape.rank for each in optimised.after.graph.get_operations() if each.type in ROW_OPERATIONS
    ]
    assert {2} == set(ranks)


def shared_kernel() -> Any:
    image = keras.Input((SIDE, SIDE, 3))
    shared = layers.Conv2D(3, 1)
    return trained(keras.Model(image, layers.Add()([shared(image), shared(shared(image))])))


def explicitly_padded() -> Any:
    kernel = tf.Variable(tf.ones([1, 1, 3, 4]))
    return lambda images: tf.nn.conv2d(images, kernel, 1, [[0, 0], [1, 1], [1, 1], [0, 0]])


def float64_convolution() -> Any:
    kernel = tf.Variable(tf.ones([1, 1, 3, 4], tf.float64))
    return lambda images: tf.cast(tf.nn.conv2d(tf.cast(images, tf.float64), kernel, 1, "SAME"), tf.float32)


CONVOLUTIONS = {
    "larger kernel": lambda: network_of(conv()),
    "strides": lambda: network_of(layers.Conv2D(4, 1, strides=2)),
    "groups": lambda: network_of(layers.Conv2D(6, 1, groups=3)),
    "shared kernel": shared_kernel,
    "explicit padding": explicitly_padded,
    "float64": float64_convolution,
}


@pytest.mark.parametrize("network", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_other_convolutions_stay(network: Callable[[], Any]) -> None:
    optimised = optimise_and_compare(network())
    assert "Conv2D" in optimised.operations()
    assert "MatMul" not in optimised.operations()


def make_kernel(size: int, scale: float = 1) -> Any:
    """A kernel from three channels to four."""
    values = np.random.default_rng(0).normal(size=(size, size, 3, 4), scale=scale)
    return tf.Variable(values.astype(np.float32))


def used_twice_with(follow: Callable[[Any], Any], size: int) -> Callable[[Any], Any]:
    """A convolution whose output is used by `follow` and once more."""
    kernel = make_kernel(size, scale=9)

    def call(images: Any) -> Any:
        filtered = tf.nn.conv2d(images, kernel, 1, "SAME")
        return follow(filtered) - filtered

    return call


@pytest.mark.parametrize("follow", [tf.nn.relu, tf.nn.relu6, lambda x: tf.nn.bias_add(x, tf.range(4.0))])
@pytest.mark.parametrize("size", [1, 3])
def test_a_convolution_with_another_use_is_not_fused(follow: Callable[[Any], Any], size: int) -> None:
    optimised = optimise_and_compare(used_twice_with(follow, size))
    assert "Minimum" not in optimised.operations()
    assert size == (1 if "MatMul" in optimised.operations() else 3)


def test_a_bias_of_another_axis_is_not_applied_to_rows() -> None:
    """A bias with channels first on an input with channels last: one per row of the image. OneDNN can't run it."""
    kernel = make_kernel(1)
    before = tf.function(
        lambda images: tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), tf.range(6.0), "NCHW"), autograph=False
    ).get_concrete_function(tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
    after, _ = optimise(before, OPTIMISATIONS)
    (bias,) = (each for each in after.graph.get_operations() if each.type == "BiasAdd")
    assert [None, SIDE, SIDE, 4] == bias.outputs[0].shape.as_list()


def test_a_clip_keeps_its_control_dependencies() -> None:
    kernel = make_kernel(3)

    def call(images: Any) -> Any:
        filtered = tf.nn.conv2d(images, kernel, 1, "SAME")
        with tf.control_dependencies([tf.debugging.assert_less(images, 100.0)]):
            return tf.nn.relu6(filtered)

    optimised = optimise_and_compare(call)
    (relu,) = (each for each in optimised.after.graph.get_operations() if each.type == "Relu")
    assert relu.control_inputs


def test_a_convolution_of_images_of_any_size_stays() -> None:
    kernel = make_kernel(1)
    before = tf.function(
        lambda images: tf.nn.relu6(tf.nn.conv2d(images, kernel, 1, "SAME")), autograph=False
    ).get_concrete_function(tf.TensorSpec([None, None, None, 3], tf.float32))
    after, _ = optimise(before, OPTIMISATIONS)
    assert "Conv2D" in operations(after)
    images = np.random.default_rng(1).normal(size=(2, 5, 7, 3), scale=9).astype(np.float32)
    np.testing.assert_allclose(before(images), after(images), rtol=1e-5)


def test_relu6_after_a_larger_convolution_is_split() -> None:
    """After a depthwise one it is not."""
    optimised = optimise_and_compare(network_of(layers.Rescaling(100.0), conv(), norm(), layers.ReLU(6)))
    assert (0, 1, 1) == tuple(optimised.operations()[name] for name in ("Relu6", "Relu", "Minimum"))
    optimised = optimise_and_compare(network_of(layers.Rescaling(100.0), layers.DepthwiseConv2D(3), layers.ReLU(6)))
    assert (1, 0, 0) == tuple(optimised.operations()[name] for name in ("Relu6", "Relu", "Minimum"))


class Stateful(tf.Module):
    """Counts its calls in a variable, so that its graph must not be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(1.0)

    def __call__(self, images: Any) -> Any:
        return tf.reduce_mean(images, [1, 2]) + 0.0 * self.calls.assign_add(1.0)


def test_a_network_that_writes_its_variables_stays_unchanged() -> None:
    network = Stateful()
    before = tf.function(network, autograph=False).get_concrete_function(
        tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32)
    )
    assert before is optimise(before, OPTIMISATIONS)[0]


def test_loops_conditions_and_checks_stay() -> None:
    """The content of loops and conditions is not changed, and an assertion still fails."""

    def call(images: Any) -> Any:
        tf.debugging.assert_less(images, 100.0)
        _, doubled = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2.0), (0, images))
        return tf.cond(tf.reduce_sum(images) > 0.0, lambda: doubled, lambda: -doubled)

    before = tf.function(call, autograph=False).get_concrete_function(tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
    after, _ = optimise(before, OPTIMISATIONS)
    assert before is not after
    for level in (-1.0, 1.0):
        images = tf.fill([2, SIDE, SIDE, 3], level)
        np.testing.assert_array_equal(before(images), after(images))
    with pytest.raises(tf.errors.InvalidArgumentError):
        after(tf.fill([1, SIDE, SIDE, 3], 100.0))


STEPS = {
    "none": ((), {"Mul": 6, "Rsqrt": 2, "Identity": 2}),
    "drop-dead-operations": (("drop-dead-operations",), {"Mul": 6, "Rsqrt": 2, "Identity": 1}),
    "fold-batch-norm": (("fold-batch-norm",), {"Mul": 3, "Rsqrt": 1, "Identity": 3}),
    "fold-constants": (("fold-constants",), {"Mul": 2, "Rsqrt": 0, "Identity": 3}),
    "suit-cpu-kernels": (("suit-cpu-kernels",), {"Mul": 6, "Rsqrt": 2, "Identity": 3, "MatMul": 1}),
    "all": (OPTIMISATIONS, {"Mul": 1, "Rsqrt": 0, "Identity": 1, "MatMul": 1}),
}


@pytest.mark.parametrize(("steps", "expected"), STEPS.values(), ids=STEPS)
def test_each_step_can_be_applied_alone(steps: tuple[str, ...], expected: dict[str, int]) -> None:
    """To a network with a norm that can be folded, an identity, and a norm that can't."""
    stack = network_of(conv(), norm(), layers.ReLU(), norm(), layers.Conv2D(4, 1, use_bias=False))
    optimised = optimise_and_compare(lambda images: tf.nn.relu(tf.identity(stack(images))), steps)
    assert expected == {name: optimised.operations()[name] for name in expected}


def test_functions_that_loops_call_are_kept() -> None:
    """The body of a loop isn't inlined, so what it calls must stay too."""
    scale = tf.function(lambda image: image * 2, input_signature=[tf.TensorSpec([1, SIDE, SIDE, 3])], autograph=False)
    optimise_and_compare(
        lambda images: tf.reduce_mean(tf.map_fn(lambda image: scale(image[tf.newaxis])[0], images), [1, 2])
    )
