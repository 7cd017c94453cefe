"""Lowers a network to 16-bit floats, which halve its weights, change its answers and are faster on some hardware.

Lowers convolutions, matrix products and the operations between them. The last of them stays float32, because scores
would be too coarse otherwise. Other operations stay float32 too, with casts in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import (
    PASS_THROUGH,
    FlatGraph,
    add_until_stable,
    node_name,
    op_definition,
)
from savedmodel_bakery.exporter.optimisation.folding import constant_nodes
from savedmodel_bakery.exporter.tensor_types import NodeDef

_LINEAR = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2"})
_BETWEEN = PASS_THROUGH | {
    *("BiasAdd", "Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "Neg"),
    *("Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh"),
    *("MaxPool", "AvgPool", "Mean", "Pad", "PadV2", "MirrorPad"),
    *("ConcatV2", "Reshape", "Squeeze", "ExpandDims", "Transpose"),
}


def lower_precision(graph: FlatGraph, dtype: tf.DType) -> int:
    """Lower suitable operations to `dtype`, bfloat16 or float16, and return their number.

    The network's input and outputs stay float32.
    """
    lowered = _lowered_nodes(graph)
    casts: dict[str, str] = {}

    def cast(tensor: str, to: tf.DType) -> str:
        if tensor not in casts:
            name, weight = f"{node_name(tensor)}/{to.name}", graph.weights.get(graph.origin(tensor))
            if to == dtype and weight is not None:
                casts[tensor] = graph.add_weight(name, weight.numpy().astype(dtype.as_numpy_dtype))
            else:
                casts[tensor] = graph.add("Cast", name, tensor, SrcT=tf.float32 if to == dtype else dtype, DstT=to)
        return casts[tensor]

    for node in list(graph.nodes.values()):
        lowered_positions = set[int]()
        if node.name in lowered:
            node.attr["T"].type = dtype.as_datatype_enum
            lowered_positions.update(_positions_of_type_t(node))
        for position, source in enumerate(node.input):
            is_lowered = position in lowered_positions
            if not source.startswith("^") and is_lowered != (node_name(source) in lowered):
                node.input[position] = cast(source, dtype if is_lowered else tf.float32)
    graph.outputs = [cast(output, tf.float32) if node_name(output) in lowered else output for output in graph.outputs]
    return len(lowered)


def _lowered_nodes(graph: FlatGraph) -> Set[str]:
    """Return the names of the nodes to lower."""
    constant = constant_nodes(graph)
    candidates = [
        node
        for name, node in graph.nodes.items()
        if name not in constant and "T" in node.attr and node.attr["T"].type == tf.float32.as_datatype_enum
    ]
    linear = [node for node in candidates if node.op in _LINEAR]
    before_linear = graph.dependencies(source for node in linear for source in node.input)
    return add_until_stable(
        [node.name for node in linear if node.name in before_linear],
        [node for node in candidates if node.op in _BETWEEN],
        lambda node, lowered: any(node_name(node.input[index]) in lowered for index in _positions_of_type_t(node)),
    )


def _positions_of_type_t(node: NodeDef) -> Iterator[int]:
    """Yield the positions of the inputs whose dtype is the node's attribute `T`."""
    position = 0
    definition = op_definition(node.op)
    for argument in definition.input_arg if definition else ():
        count = node.attr[argument.number_attr].i if argument.number_attr else 1
        if argument.type_attr == "T":
            yield from range(position, position + count)
        position += count
