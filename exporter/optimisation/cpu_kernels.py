"""What TensorFlow computes faster on CPUs when it is written another way.

A convolution with a kernel of 1 × 1 is a product of matrices. As such EfficientNet-Lite0 took 2 % less time with one
image and 8 % less with two (TensorFlow 2.21, AVX-512), 5 % less in bfloat16, and as much without oneDNN. Where oneDNN
had no more than AVX2, it took 40 % of the time: convolutions of one image that clip to 6 as they write do so number by
number there, so that those that are left had better clip afterwards. On a GPU it was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph, Use, has_channels_last

# What TensorFlow computes together with a product or a convolution, as it writes.
_ACTIVATIONS = frozenset({"Relu", "Relu6", "LeakyRelu", "Elu", "Sigmoid", "Tanh"})


def suit_cpu_kernels(graph: FlatGraph) -> None:
    """Make products of 1 × 1 convolutions, and have others clip to 6 after they have written.

    Only a kernel that is a weight of one convolution alone becomes a matrix, and only pictures of a known size rows.
    """
    convolutions = [node for node in graph.nodes.values() if _is_known(node)]
    read_once = graph.read_once()
    shapes = graph.shapes([node.input[0] for node in convolutions])
    uses = graph.uses()
    for node in convolutions:
        last = _written_together(graph, node, uses)
        shape = shapes[node.input[0]]
        if node.input[1] in read_once and _is_pointwise(graph, node, shape):
            _write_as_product(graph, node, last, shape)
        elif graph.nodes[last].op == "Relu6":
            _clip_afterwards(graph, last)


def _is_known(node: Any) -> bool:
    """Whether it is a convolution of float32 with channels last, that waits for no other operation."""
    return (
        node.op == "Conv2D"
        and node.attr["T"].type == tf.float32.as_datatype_enum
        and has_channels_last(node)
        and len(node.input) == 2
    )


def _is_pointwise(graph: FlatGraph, node: Any, shape: tf.TensorShape) -> bool:
    """Whether it takes all channels of one place, for each place of pictures of `shape`."""
    kernel = graph.weights.get(graph.origin(node.input[1]))
    return (
        kernel is not None
        and shape[1:].is_fully_defined()
        and (1, 1, shape[3]) == tuple(kernel.shape[:3])
        and {1} == set(node.attr["strides"].list.i)
        and node.attr["padding"].s != b"EXPLICIT"
    )


def _written_together(graph: FlatGraph, node: Any, uses: Mapping[str, list[Use]]) -> str:
    """Where a convolution ends: at the bias and the activation, if each is all that uses what is before it."""
    last = str(node.name)
    while len(uses[last]) == 1 and graph.nodes[last].op not in _ACTIVATIONS:
        name, place, _ = uses[last][0]
        if (
            place != 0
            or graph.nodes[name].op not in {"BiasAdd", *_ACTIVATIONS}
            or not has_channels_last(graph.nodes[name])
        ):
            break
        last = name
    return last


def _write_as_product(graph: FlatGraph, node: Any, last: str, shape: tf.TensorShape) -> None:
    """Each place of a picture is a row; what `last` gives are pictures again."""
    (kernel,) = graph.values([node.input[1]]).values()
    matrix = graph.add_weight(f"{node.name}/matrix", kernel.reshape(kernel.shape[2:]))
    row = graph.add_constant(f"{node.name}/row", np.array([-1, shape[3]], np.int32))
    rows = graph.add("Reshape", f"{node.name}/rows", node.input[0], row, T=tf.float32, Tshape=tf.int32)
    graph.put("MatMul", node.name, rows, matrix, T=tf.float32)
    pictures = graph.add_constant(f"{node.name}/pictures", np.array([-1, *shape[1:3], kernel.shape[3]], np.int32))
    graph.put("Reshape", last, graph.rename(last), pictures, T=tf.float32, Tshape=tf.int32)


def _clip_afterwards(graph: FlatGraph, relu6: str) -> None:
    (source, *waited_for) = graph.nodes[relu6].input
    relu = graph.add("Relu", f"{relu6}/relu", source, *waited_for, T=tf.float32)
    graph.put("Minimum", relu6, relu, graph.add_constant(f"{relu6}/six", np.float32(6)), T=tf.float32)
