"""The network in numbers of 16 bits, for hardware that computes with them faster: half the weights, and other answers.

Lowered are convolutions and products of matrices, and what stands between them. The last of them stays as it is, or
scores would be as coarse as the numbers. Whatever isn't known here stays as well, and numbers are cast where they go
from one to the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from savedmodel_bakery.exporter.optimisation.constants import constant_nodes
from savedmodel_bakery.exporter.optimisation.flat_graph import PASSING_ON, FlatGraph, node_of

_LINEAR = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2"})
_BETWEEN = PASSING_ON | {
    *("BiasAdd", "Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "Neg"),
    *("Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh"),
    *("MaxPool", "AvgPool", "Mean", "Pad", "PadV2", "MirrorPad"),
    *("ConcatV2", "Reshape", "Squeeze", "ExpandDims", "Transpose"),
}


def lower_precision(graph: FlatGraph, dtype: tf.DType) -> int:
    """Compute in `dtype`, bfloat16 or float16, what gains by it; input and output stay float32.

    Returns:
        how many operations that is.
    """
    lowered = _lowered(graph)
    casts: dict[str, str] = {}

    def cast(tensor: str, to: tf.DType) -> str:
        if tensor not in casts:
            weight = graph.weights.get(graph.origin(tensor))
            if to == dtype and weight is not None:
                value = weight.numpy().astype(dtype.as_numpy_dtype)
                casts[tensor] = graph.add_weight(f"{node_of(tensor)}/{dtype.name}", value)
            else:
                casts[tensor] = graph.add_cast(tensor, tf.float32 if to == dtype else dtype, to)
        return casts[tensor]

    for node in list(graph.nodes.values()):
        places = set[int]()
        if node.name in lowered:
            node.attr["T"].type = dtype.as_datatype_enum
            places.update(_places(node))
        for place, source in enumerate(node.input):
            if not source.startswith("^") and (place in places) != (node_of(source) in lowered):
                node.input[place] = cast(source, dtype if place in places else tf.float32)
    if node_of(graph.output) in lowered:
        graph.output = cast(graph.output, tf.float32)
    return len(lowered)


def _lowered(graph: FlatGraph) -> Set[str]:
    """Names of the nodes that are to compute in 16 bits."""
    constant = constant_nodes(graph)
    known = [
        node
        for name, node in graph.nodes.items()
        if name not in constant and "T" in node.attr and node.attr["T"].type == tf.float32.as_datatype_enum
    ]
    linear = [node for node in known if node.op in _LINEAR]
    before = graph.leading_to(source for node in linear for source in node.input)
    found = {node.name for node in linear if node.name in before}
    size = -1
    while size < len(found):
        size = len(found)
        found |= {
            node.name
            for node in known
            if node.op in _BETWEEN and any(node_of(node.input[place]) in found for place in _places(node))
        }
    return found


def _places(node: Any) -> Iterator[int]:
    """Which inputs of a node are of its type `T`."""
    place = 0
    for argument in op_def_registry.get(node.op).input_arg:
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        if argument.type_attr == "T":
            yield from range(place, place + count)
        place += count
