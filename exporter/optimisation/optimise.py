"""Applies the optimisation steps and the precision of a recipe to a traced network.

16-bit floats halve the weights, change the answers and are faster on some hardware. Convolutions, matrix products and
the operations between them are lowered. The last product stays float32, because scores would be too coarse otherwise.
Other operations stay float32 too, with casts in between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation.cpu_kernels import suit_cpu_kernels
from savedmodel_bakery.exporter.optimisation.flat_graph import (
    PASS_THROUGH,
    FlatGraph,
    add_until_stable,
    node_name,
    op_definition,
)
from savedmodel_bakery.exporter.optimisation.folding import (
    constant_nodes,
    fold_batch_norm,
    fold_constants,
    share_constants,
)
from savedmodel_bakery.exporter.optimisation.inlining import flatten
from savedmodel_bakery.exporter.optimisation.int8.quantise import Coverage, quantise
from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, NodeDef, Variable

# Operations that are lowered, and those that are lowered after one of them.
_LINEAR = frozenset({"Conv2D", "DepthwiseConv2dNative", "MatMul", "BatchMatMulV2"})
_BETWEEN = PASS_THROUGH | {
    *("BiasAdd", "Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "Neg"),
    *("Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh"),
    *("MaxPool", "AvgPool", "Mean", "Pad", "PadV2", "MirrorPad"),
    *("ConcatV2", "Reshape", "Squeeze", "ExpandDims", "Transpose"),
}


def drop_dead_operations(graph: FlatGraph) -> None:
    """Bypass operations that have no effect in a served network, such as identities and stopped gradients."""
    for node in graph.nodes.values():
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                node.input[position] = graph.origin(name)
    graph.outputs = [graph.origin(output) for output in graph.outputs]


# By name in exporter.recipe.OPTIMISATIONS, in the order in which they are applied: each prepares the next.
_STEPS: Mapping[str, Callable[[FlatGraph], None]] = {
    "drop-dead-operations": drop_dead_operations,
    "fold-batch-norm": fold_batch_norm,
    "fold-constants": fold_constants,
    "share-constants": share_constants,
    "suit-cpu-kernels": suit_cpu_kernels,
}


def optimise(
    network: ConcreteFunction, steps: Collection[str], precision: str = "float32"
) -> tuple[ConcreteFunction, list[Variable]]:
    """Optimise a network from inputs, [batch, …], to one output or a dict of them, [batch, …].

    Returns an equivalent function, equal up to rounding errors of the precision in which most of it is computed, and
    the variables it reads; steps may replace variables. It is `network` itself if there are no steps or its graph can't
    be rewritten safely.
    """
    is_lower_precision = precision != "float32"
    graph = flatten(network) if steps or is_lower_precision else None
    if graph is not None:
        _apply(graph, steps)
    if is_lower_precision and (graph is None or not _lower_precision(graph, tf.as_dtype(precision))):
        raise SourceError(
            f"precision {precision} has no effect on this network: it has no convolution or matrix product before its "
            "last, or uses control flow of TensorFlow 1; bake with --precision float32"
        )
    return (network, list(network.graph.variables)) if graph is None else graph.trace()


def optimise_int8(
    network: ConcreteFunction, steps: Collection[str], images: np.ndarray
) -> tuple[ConcreteFunction, list[Variable], Coverage]:
    """Optimise a network as `optimise` does, and quantise its convolutions and matrix products to 8-bit integers.

    The step `suit-cpu-kernels` is for what stays float32. The images to calibrate with are normalised, float32
    [images, height, width, channels]. Returns a function that approximates the network, the variables it reads, and how
    much of it is quantised.
    """
    graph = flatten(network)
    coverage = Coverage(0, 0.0)
    if graph is not None:
        suited = set(steps) & {"suit-cpu-kernels"}
        _apply(graph, set(steps) - suited)
        graph.prune()
        coverage = quantise(graph, images)
        _apply(graph, suited)
        graph.prune()
    if graph is None or not coverage.layers:
        raise SourceError(
            "precision int8 has no effect on this network: no convolution or matrix product before its last layer is "
            "large enough to gain from it, or it uses control flow of TensorFlow 1; bake with --precision float32"
        )
    return *graph.trace(), coverage


def _apply(graph: FlatGraph, steps: Collection[str]) -> None:
    for name, step in _STEPS.items():
        if name in steps:
            graph.prune()
            step(graph)


def _lower_precision(graph: FlatGraph, dtype: tf.DType) -> int:
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
