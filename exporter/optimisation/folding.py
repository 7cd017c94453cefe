"""Folds what depends on a network's weights alone: computes constants in advance, and folds batch norms into layers.

At inference a batch norm is y = scale · x + shift per channel (Ioffe and Szegedy 2015, section 3.1), and the
convolution, depthwise convolution or dense layer before it is linear. So the scale goes into its kernel, and the shift
becomes a bias. Keras 3 writes a batch norm as Mul and AddV2, Keras 2 and TensorFlow 1 as FusedBatchNorm; any other
chain of such operations is folded too.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import (
    PASS_THROUGH,
    FlatGraph,
    Use,
    add_until_stable,
    has_channels_last,
    node_name,
)
from savedmodel_bakery.exporter.tensor_types import NodeDef

# Deterministic operations, such as those that compute a batch norm.
_PURE = PASS_THROUGH | {
    *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Neg", "Pow", "Square", "Sqrt", "Rsqrt", "Exp"),
    *("Reciprocal", "Inv", "Maximum", "Minimum", "Abs", "Sum", "Mean", "Softplus", "Sigmoid", "Tanh"),
    *("Cast", "Const", "NoOp", "Reshape", "ExpandDims", "Squeeze", "Transpose", "ConcatV2", "Pack"),
}
_NOT_COMPUTED = frozenset({"Const", "Placeholder"})
_FLOATS = frozenset({tf.float16, tf.bfloat16, tf.float32, tf.float64})

_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_RANKS = {"Conv2D": 4, "DepthwiseConv2dNative": 4, "MatMul": 2}

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


class _Affine(NamedTuple):
    """scale · x + shift, both float64 [channels]."""

    scale: np.ndarray
    shift: np.ndarray


def fold_batch_norm(graph: FlatGraph) -> None:
    """Fold the affine operations after each linear operation into its kernel and one bias.

    An operation is folded if it is the only user of the one before it. A kernel that several operations share is left
    unchanged, because it would be needed several times.
    """
    edges = set(constant_edges(graph))
    linear = [node for node in graph.nodes.values() if _is_linear(node) and node.input[1].removesuffix(":0") in edges]
    values = graph.values(sorted(edges - {node.input[1].removesuffix(":0") for node in linear}))
    uses = graph.uses()
    read_once = graph.read_once()
    for node in linear:
        if node.input[1] in read_once:
            (kernel,) = graph.values([node.input[1]]).values()  # one at a time, as they are large
            affine, chain = _affine_chain(graph, node, _by_channel(node, kernel).shape[-1], values, uses)
            if any(graph.nodes[name].op not in PASS_THROUGH | {"BiasAdd"} for name in chain):
                _fold(graph, node, kernel, affine, chain[-1])


def _is_linear(node: NodeDef) -> bool:
    """Return whether this is a float32 operation that is linear in a kernel, with channels last."""
    return (
        node.op in _RANKS
        and node.attr["T"].type == tf.float32.as_datatype_enum
        and has_channels_last(node)
        and not ("transpose_b" in node.attr and node.attr["transpose_b"].b)
    )


def _by_channel(node: NodeDef, kernel: np.ndarray) -> np.ndarray:
    """Return the kernel with output channels as its last axis; for a depthwise one they are channels × multiplier."""
    return kernel.reshape(*kernel.shape[:2], -1) if node.op == "DepthwiseConv2dNative" else kernel


def _affine_chain(
    graph: FlatGraph, start: NodeDef, channels: int, values: Mapping[str, np.ndarray], uses: Mapping[str, list[Use]]
) -> tuple[_Affine, list[str]]:
    """Combine the affine operations after `start`, as long as each is the only user of the previous one.

    Returns their combined effect, and the names of their nodes.
    """
    combined, chain = _Affine(np.ones(channels), np.zeros(channels)), list[str]()
    current = start.name
    while len(uses[current]) == 1:
        name, position, _ = uses[current][0]
        if position is None or any(use.output for use in uses[name]):
            break
        affine = _combine(combined, graph.nodes[name], position, _RANKS[start.op], values)
        if affine is None:
            break
        combined, current = affine, name
        chain.append(name)
    return combined, chain


def _combine(
    before: _Affine, node: NodeDef, position: int, rank: int, values: Mapping[str, np.ndarray]
) -> _Affine | None:
    """Return the effect of the operations `before` followed by `node`; None if it isn't affine per channel.

    The node takes their result, of `rank` axes, as input `position`.
    """
    if any(name.startswith("^") for name in node.input):
        return None
    if node.op in PASS_THROUGH:
        return before
    arguments = [values.get(name.removesuffix(":0")) for index, name in enumerate(node.input) if index != position]
    constants = [value.astype(np.float64) for value in arguments if value is not None]
    if len(constants) < len(arguments) or not has_channels_last(node):
        return None
    if node.op in _NORMS:
        if node.attr["is_training"].b or position != 0:
            return None
        gamma, beta, mean, variance = constants
        scale = gamma / np.sqrt(variance + node.attr["epsilon"].f)
        return _Affine(before.scale * scale, (before.shift - mean) * scale + beta)
    if len(constants) != 1 or (constant := _per_channel(constants[0], len(before.scale), rank)) is None:
        return None
    if node.op == "Mul":
        return _Affine(before.scale * constant, before.shift * constant)
    if node.op == "RealDiv" and position == 0:
        return _Affine(before.scale / constant, before.shift / constant)
    if node.op in ("Add", "AddV2", "BiasAdd"):
        return _Affine(before.scale, before.shift + constant)
    if node.op == "Sub" and position == 0:
        return _Affine(before.scale, before.shift - constant)
    if node.op == "Sub":
        return _Affine(-before.scale, constant - before.shift)
    return None


def _per_channel(constant: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """Return `constant` as [channels]; None if broadcasting it to a tensor of `rank` varies more than the channels."""
    if constant.ndim > rank or (constant.size > 1 and (constant.size != channels or constant.shape[-1] != channels)):
        return None
    return np.broadcast_to(constant.reshape(-1), channels)


def _fold(graph: FlatGraph, node: NodeDef, kernel: np.ndarray, affine: _Affine, last: str) -> None:
    """Scale the kernel of `node`, and replace the `last` operation of the chain after it by one bias."""
    scaled = (_by_channel(node, kernel) * affine.scale).astype(kernel.dtype).reshape(kernel.shape)
    bias = affine.shift.astype(kernel.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(bias).all()):
        return
    if (affine.scale != 1).any():
        node.input[1] = graph.add_weight(f"{node.name}/kernel", scaled)
    graph.put("BiasAdd", last, node.name, graph.add_weight(f"{node.name}/bias", bias), T=tf.float32)
