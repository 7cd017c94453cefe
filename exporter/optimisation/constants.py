"""Finds the parts of a network that depend on its weights alone, and computes them in advance."""

from __future__ import annotations

from collections.abc import Set

import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import PASS_THROUGH, FlatGraph, add_until_stable, node_name

# Deterministic operations, such as those that compute a batch norm.
_PURE = PASS_THROUGH | {
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Neg", "Pow", "Square", "Sqrt", "Rsqrt", "Exp"),
    *("Reciprocal", "Inv", "Maximum", "Minimum", "Abs", "Sum", "Mean", "Softplus", "Sigmoid", "Tanh"),
    *("Cast", "Const", "NoOp", "Reshape", "ExpandDims", "Squeeze", "Transpose", "ConcatV2", "Pack"),
}
_NOT_COMPUTED = frozenset({"Const", "Placeholder"})
_FLOATS = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})

# Constants of this size or more become variables: a constant would be in memory once per signature.
_WEIGHT_BYTES = 1024


def constant_nodes(graph: FlatGraph) -> Set[str]:
    """Return the names of the nodes that depend only on weights and constants."""
    pure = [node for node in graph.nodes.values() if node.op in _PURE]
    return add_until_stable(
        graph.weights, pure, lambda node, constant: all(node_name(source) in constant for source in node.input)
    )


def constant_edges(graph: FlatGraph) -> list[str]:
    """Return the floating-point tensors that depend only on weights and are inputs of nodes that don't."""
    constant = constant_nodes(graph)
    used = {
        source.removesuffix(":0")
        for name, node in graph.nodes.items()
        if name not in constant
        for source in node.input
        if not source.startswith("^") and node_name(source) in constant
    }
    return [tensor for tensor in sorted(used) if _dtype(graph, tensor) in _FLOATS]


def fold_constants(graph: FlatGraph) -> None:
    """Replace what depends only on weights, such as casts of weights, by its value."""
    origins = {tensor: graph.origin(tensor) for tensor in constant_edges(graph)}
    computed = [tensor for tensor, origin in origins.items() if graph.nodes[node_name(origin)].op not in _NOT_COMPUTED]
    for tensor, value in graph.values(computed).items():
        _replace(graph, tensor, graph.add_weight(f"{node_name(tensor)}/folded", value))


def share_constants(graph: FlatGraph) -> None:
    """Replace large constants by variables, which all signatures share in the file and in memory."""
    for name, node in list(graph.nodes.items()):
        if node.op == "Const" and _dtype(graph, name) in _FLOATS:
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.nbytes >= _WEIGHT_BYTES:
                _replace(graph, name, graph.add_weight(f"{name}/shared", value))


def _replace(graph: FlatGraph, tensor: str, replacement: str) -> None:
    for node in graph.nodes.values():
        for position, name in enumerate(node.input):
            if name.removesuffix(":0") == tensor:
                node.input[position] = replacement


def _dtype(graph: FlatGraph, tensor: str) -> tf.DType | None:
    """Return the dtype of a pure operation's output; None if its attributes don't state it."""
    attributes = graph.nodes[node_name(tensor)].attr
    name = next((name for name in ("DstT", "dtype", "T") if name in attributes), None)
    return tf.as_dtype(attributes[name].type) if name else None
