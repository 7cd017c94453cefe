"""Optimised networks answer as before; what is gone from their graphs, and what must stay."""

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
from savedmodel_bakery.exporter.sources import SourceOptions, read_network

tf1 = tf.compat.v1
SIDE = 6
# What a batch norm is made of, in any of its forms, and what computes its two numbers.
NORM = {"Mul", "Sub", "Rsqrt", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"}


class Made(NamedTuple):
    """A network before and after: concrete functions, and the variables that the second reads."""

    before: Any
    after: Any
    variables: list[Any]

    def operations(self) -> Counter[str]:
        return operations(self.after)

    def weights(self) -> list[tuple[int, ...]]:
        """Shapes of the variables that are read, which are what is written to disk."""
        return sorted(tuple(variable.shape) for variable in self.variables)


def operations(function: Any) -> Counter[str]:
    """How many there are of each, in the functions that it calls, too."""
    graph_def = function.graph.as_graph_def()
    called = (node for function in graph_def.library.function for node in function.node_def)
    return Counter(node.op for node in (*graph_def.node, *called))


def make(call: Callable[[Any], Any], steps: tuple[str, ...] = OPTIMISATIONS) -> Made:
    """Trace and optimise; that it answers the same is claimed of every network here."""
    images = np.random.default_rng(0).normal(size=(3, SIDE, SIDE, 3)).astype(np.float32)
    spec = tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32, name="normalised")
    before = tf.function(call).get_concrete_function(spec)
    made = Made(before, *optimise(before, steps))
    for batch in (images, images[:1]):
        np.testing.assert_allclose(made.before(batch), made.after(batch), rtol=1e-4, atol=1e-5)
    return made


def of_layers(*stack: Any) -> Callable[[Any], Any]:
    image = keras.Input((SIDE, SIDE, 3))
    tensor = image
    for layer in stack:
        tensor = layer(tensor)
    return trained(keras.Model(image, tensor))


def trained(model: Any) -> Callable[[Any], Any]:
    """Its inference, with weights such as training leaves them: none is 0 or 1, variances are positive."""
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
    "with neither": ([conv(), norm(scale=False, center=False)], [(3, 3, 3, 4), (4,)]),
    "two norms": ([conv(), norm(), norm()], [(3, 3, 3, 4), (4,)]),
    "a norm and a rescaling": ([conv(), norm(), layers.Rescaling(-2.0, 1.0)], [(3, 3, 3, 4), (4,)]),
    "after dropout": ([conv(), layers.Dropout(0.5), norm(), layers.ReLU()], [(3, 3, 3, 4), (4,)]),
}


@pytest.mark.parametrize(("stack", "weights"), FOLDED.values(), ids=FOLDED)
def test_a_batch_norm_goes_into_what_is_before_it(stack: list[Any], weights: list[tuple[int, ...]]) -> None:
    """Of its variables and the old kernel nothing stays: each weight is there once."""
    made = make(of_layers(*stack))
    assert NORM & set(operations(made.before))
    assert not (NORM | {"AddV2", "StatefulPartitionedCall"}) & set(made.operations())
    assert weights == made.weights()


def used_twice() -> Any:
    """The convolution's own output is used beside the norm's."""
    image = keras.Input((SIDE, SIDE, 3))
    filtered = conv()(image)
    return trained(keras.Model(image, layers.Concatenate()([filtered, norm()(filtered)])))


def shared_convolution() -> Any:
    """One convolution with two norms."""
    image = keras.Input((SIDE, SIDE, 3))
    shared = conv()
    turned = layers.ReLU()(image)
    return trained(keras.Model(image, layers.Add()([norm()(shared(image)), norm()(shared(turned))])))


class OfAxis(layers.Layer):
    """Scales rows, not channels, though there are as many."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[1], 1))

    def call(self, tensor: Any) -> Any:
        return tensor * self.scale


KEPT = {
    "after an activation": lambda: of_layers(conv(activation="relu"), norm()),
    "before a convolution": lambda: of_layers(norm(), conv(padding="same")),
    "of another axis": lambda: of_layers(conv(), norm(axis=1)),
    "scale of rows": lambda: of_layers(conv(), OfAxis()),
    "output used twice": used_twice,
    "shared convolution": shared_convolution,
}


@pytest.mark.parametrize("network", KEPT.values(), ids=KEPT)
def test_what_is_no_batch_norm_of_a_convolution_alone_stays(network: Callable[[], Any]) -> None:
    """Its two numbers are computed once nevertheless."""
    made = make(network())
    assert "Mul" in made.operations()
    assert "Rsqrt" not in made.operations()


def test_an_optimised_network_gives_the_convolution_itself() -> None:
    """The output of the network is a use of it, too."""
    made = make(of_layers(conv()))
    assert 1 == made.operations()["BiasAdd"]
    assert len({id(variable) for variable in (*made.before.graph.variables, *made.variables)}) == 3  # kernel, biases


def test_a_saved_model_of_tensorflow_1(tmp_path: Path) -> None:
    """FusedBatchNorm of every version, behind identities, defaults and stopped gradients."""
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
    made = make(read_network(str(tmp_path / "tf1"), SourceOptions()).call)
    assert not (NORM | {"PlaceholderWithDefault", "StopGradient"}) & set(made.operations())
    assert [(3, 3, 3, 4), (3, 3, 4, 4), (3, 3, 4, 4), (4,), (4,), (4,)] == made.weights()


def test_a_saved_model_of_tensorflow_2(tmp_path: Path) -> None:
    """Its functions are inlined."""
    image = keras.Input((SIDE, SIDE, 3))
    model = keras.Model(image, layers.GlobalAveragePooling2D()(norm()(conv()(image))))
    trained(model)
    model.export(tmp_path / "tf2", verbose=False)
    made = make(read_network(str(tmp_path / "tf2"), SourceOptions()).call)
    assert {"Placeholder", "ReadVariableOp", "Conv2D", "BiasAdd", "Mean", "Const", "Identity", "NoOp"} == set(
        made.operations()
    )


def test_constants_of_a_source_become_variables_where_they_are_large() -> None:
    """As in a frozen graph; a small one is as well off in the graph."""
    kernel = np.random.default_rng(0).normal(size=(3, 3, 3, 32)).astype(np.float32)
    made = make(lambda images: tf.nn.conv2d(images, kernel, 1, "SAME") + np.arange(32, dtype=np.float32))
    assert [(3, 3, 3, 32), (32,)] == made.weights()
    made = make(lambda images: tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME")) + np.float32(1))
    assert [(3, 3, 3, 32)] == made.weights()


ON_ROWS = {"MatMul", "BiasAdd", "Relu6", "Relu"}
PRODUCTS = {
    "alone": ([layers.Conv2D(4, 1, use_bias=False)], [(3, 4)]),
    "with a bias": ([layers.Conv2D(4, 1)], [(3, 4), (4,)]),
    "with a norm and an activation": ([layers.Conv2D(4, 1), norm(), layers.ReLU(6)], [(3, 4), (4,)]),
    "with two activations": ([layers.Conv2D(4, 1), layers.ReLU(), layers.Activation("sigmoid")], [(3, 4), (4,)]),
    "padded to no other size": ([layers.Conv2D(4, 1, padding="same")], [(3, 4), (4,)]),
    "one after the other": ([layers.Conv2D(4, 1), layers.Conv2D(2, 1)], [(2,), (3, 4), (4,), (4, 2)]),
}


@pytest.mark.parametrize(("stack", "weights"), PRODUCTS.values(), ids=PRODUCTS)
def test_a_convolution_of_1_by_1_is_a_product_of_matrices(stack: list[Any], weights: list[tuple[int, ...]]) -> None:
    """What follows is computed on its rows, where TensorFlow joins it to the product."""
    made = make(of_layers(*stack))
    assert "Conv2D" not in made.operations()
    assert weights == made.weights()
    ranks = [each.outputs[0].shape.rank for each in made.after.graph.get_operations() if each.type in ON_ROWS]
    assert {2} == set(ranks)


def shared_kernel() -> Any:
    image = keras.Input((SIDE, SIDE, 3))
    shared = layers.Conv2D(3, 1)
    return trained(keras.Model(image, layers.Add()([shared(image), shared(shared(image))])))


def padded_around() -> Any:
    kernel = tf.Variable(tf.ones([1, 1, 3, 4]))
    return lambda images: tf.nn.conv2d(images, kernel, 1, [[0, 0], [1, 1], [1, 1], [0, 0]])


def in_double() -> Any:
    kernel = tf.Variable(tf.ones([1, 1, 3, 4], tf.float64))
    return lambda images: tf.cast(tf.nn.conv2d(tf.cast(images, tf.float64), kernel, 1, "SAME"), tf.float32)


CONVOLUTIONS = {
    "larger kernel": lambda: of_layers(conv()),
    "strides": lambda: of_layers(layers.Conv2D(4, 1, strides=2)),
    "groups": lambda: of_layers(layers.Conv2D(6, 1, groups=3)),
    "shared kernel": shared_kernel,
    "padded around": padded_around,
    "float64": in_double,
}


@pytest.mark.parametrize("network", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_other_convolutions_stay(network: Callable[[], Any]) -> None:
    made = make(network())
    assert "Conv2D" in made.operations()
    assert "MatMul" not in made.operations()


def kernel_of(size: int, scale: float = 1) -> Any:
    """From three channels to four."""
    values = np.random.default_rng(0).normal(size=(size, size, 3, 4), scale=scale)
    return tf.Variable(values.astype(np.float32))


def beside(follow: Callable[[Any], Any], size: int) -> Callable[[Any], Any]:
    """A convolution, and what follows it beside another use of its own output."""
    kernel = kernel_of(size, scale=9)

    def call(images: Any) -> Any:
        filtered = tf.nn.conv2d(images, kernel, 1, "SAME")
        return follow(filtered) - filtered

    return call


@pytest.mark.parametrize("follow", [tf.nn.relu, tf.nn.relu6, lambda x: tf.nn.bias_add(x, tf.range(4.0))])
@pytest.mark.parametrize("size", [1, 3])
def test_what_uses_a_convolution_beside_others_stays(follow: Callable[[Any], Any], size: int) -> None:
    made = make(beside(follow, size))
    assert "Minimum" not in made.operations()
    assert size == (1 if "MatMul" in made.operations() else 3)


def test_a_bias_of_another_axis_is_not_computed_on_rows() -> None:
    """Channels first, on what has them last: a bias of each line; oneDNN refuses to run it."""
    kernel = kernel_of(1)
    before = tf.function(
        lambda images: tf.nn.bias_add(tf.nn.conv2d(images, kernel, 1, "SAME"), tf.range(6.0), "NCHW")
    ).get_concrete_function(tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
    after, _ = optimise(before, OPTIMISATIONS)
    (bias,) = (each for each in after.graph.get_operations() if each.type == "BiasAdd")
    assert [None, SIDE, SIDE, 4] == bias.outputs[0].shape.as_list()


def test_a_clip_that_waits_for_something_still_does() -> None:
    kernel = kernel_of(3)

    def call(images: Any) -> Any:
        filtered = tf.nn.conv2d(images, kernel, 1, "SAME")
        with tf.control_dependencies([tf.debugging.assert_less(images, 100.0)]):
            return tf.nn.relu6(filtered)

    made = make(call)
    (relu,) = (each for each in made.after.graph.get_operations() if each.type == "Relu")
    assert relu.control_inputs


def test_a_convolution_of_pictures_of_any_size_stays() -> None:
    kernel = kernel_of(1)
    before = tf.function(lambda images: tf.nn.relu6(tf.nn.conv2d(images, kernel, 1, "SAME"))).get_concrete_function(
        tf.TensorSpec([None, None, None, 3], tf.float32)
    )
    after, _ = optimise(before, OPTIMISATIONS)
    assert "Conv2D" in operations(after)
    images = np.random.default_rng(1).normal(size=(2, 5, 7, 3), scale=9).astype(np.float32)
    np.testing.assert_allclose(before(images), after(images), rtol=1e-5)


def test_a_larger_convolution_clips_afterwards() -> None:
    """A depthwise one does not."""
    made = make(of_layers(layers.Rescaling(100.0), conv(), norm(), layers.ReLU(6)))
    assert (0, 1, 1) == tuple(made.operations()[name] for name in ("Relu6", "Relu", "Minimum"))
    made = make(of_layers(layers.Rescaling(100.0), layers.DepthwiseConv2D(3), layers.ReLU(6)))
    assert (1, 0, 0) == tuple(made.operations()[name] for name in ("Relu6", "Relu", "Minimum"))


class Stateful(tf.Module):
    """Counts its calls in a variable, so that nothing of its graph may be computed before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = tf.Variable(1.0)

    def __call__(self, images: Any) -> Any:
        return tf.reduce_mean(images, [1, 2]) + 0.0 * self.calls.assign_add(1.0)


def test_a_network_that_writes_its_variables_stays_as_it_is() -> None:
    network = Stateful()
    before = tf.function(network).get_concrete_function(tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
    assert before is optimise(before, OPTIMISATIONS)[0]


def test_loops_conditions_and_checks_stay() -> None:
    """What runs in them is not looked at, and an assertion still refuses."""

    def call(images: Any) -> Any:
        tf.debugging.assert_less(images, 100.0)
        _, doubled = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * 2.0), (0, images))
        return tf.cond(tf.reduce_sum(images) > 0.0, lambda: doubled, lambda: -doubled)

    before = tf.function(call).get_concrete_function(tf.TensorSpec([None, SIDE, SIDE, 3], tf.float32))
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
def test_each_step_can_be_taken_alone(steps: tuple[str, ...], expected: dict[str, int]) -> None:
    """On a norm that can be folded, an identity, and a norm that cannot."""
    stack = of_layers(conv(), norm(), layers.ReLU(), norm(), layers.Conv2D(4, 1, use_bias=False))
    made = make(lambda images: tf.nn.relu(tf.identity(stack(images))), steps)
    assert expected == {name: made.operations()[name] for name in expected}
