"""Which parts of a network depend on its weights alone, and what comes out of them."""

from __future__ import annotations

from collections.abc import Set

import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import PASSING_ON, FlatGraph, node_of

# Operations that always give the same of the same; what batch normalisation and the like are computed with.
_PURE = PASSING_ON | {
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Neg", "Pow", "Square", "Sqrt", "Rsqrt", "Exp"),
    *("Reciprocal", "Inv", "Maximum", "Minimum", "Abs", "Sum", "Mean", "Softplus", "Sigmoid", "Tanh"),
    *("Cast", "Const", "NoOp", "Reshape", "ExpandDims", "Squeeze", "Transpose", "ConcatV2", "Pack"),
}
_GIVEN = frozenset({"Const", "Placeholder"})
_FLOATS = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})

# From this on a constant of the source is a weight: in the graph it would be in memory once for each signature.
_WEIGHT_BYTES = 1024


def constant_nodes(graph: FlatGraph) -> Set[str]:
    """Names of the nodes that depend on nothing but weights and constants."""
    constant, known = set(graph.weights), -1
    while known < len(constant):
        known = len(constant)
        constant |= {
            name
            for name, node in graph.nodes.items()
            if node.op in _PURE and all(node_of(source) in constant for source in node.input)
        }
    return constant


def constant_edges(graph: FlatGraph) -> list[str]:
    """The floating-point tensors that depend on weights alone and are used by what does not."""
    constant = constant_nodes(graph)
    used = {
        source.removesuffix(":0")
        for name, node in graph.nodes.items()
        if name not in constant
        for source in node.input
        if not source.startswith("^") and node_of(source) in constant
    }
    return [tensor for tensor in sorted(used) if _dtype(graph, tensor) in _FLOATS]


def fold_constants(graph: FlatGraph) -> None:
    """Compute once what depends on weights alone, as casts of them and the two numbers of a batch norm."""
    origins = {tensor: graph.origin(tensor) for tensor in constant_edges(graph)}
    computed = [tensor for tensor, origin in origins.items() if graph.nodes[node_of(origin)].op not in _GIVEN]
    for tensor, value in graph.values(computed).items():
        _replace(graph, tensor, graph.add_weight(f"{node_of(tensor)}/folded", value))


def share_constants(graph: FlatGraph) -> None:
    """Make large constants variables, which all signatures share, in the file and in memory."""
    for name, node in list(graph.nodes.items()):
        if node.op == "Const" and _dtype(graph, name) in _FLOATS:
            value = tf.make_ndarray(node.attr["value"].tensor)
            if value.nbytes >= _WEIGHT_BYTES:
                _replace(graph, name, graph.add_weight(f"{name}/shared", value))


def _replace(graph: FlatGraph, tensor: str, by: str) -> None:
    for node in graph.nodes.values():
        for place, name in enumerate(node.input):
            if name.removesuffix(":0") == tensor:
                node.input[place] = by


def _dtype(graph: FlatGraph, tensor: str) -> tf.DType | None:
    """Of a pure operation's output; None where its attributes don't tell."""
    attributes = graph.nodes[node_of(tensor)].attr
    name = next((name for name in ("DstT", "dtype", "T") if name in attributes), None)
    return tf.as_dtype(attributes[name].type) if name else None
