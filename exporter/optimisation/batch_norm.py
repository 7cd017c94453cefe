"""Folds batch norm into the convolution, depthwise convolution or dense layer before it.

At inference a batch norm is y = scale · x + shift per channel (Ioffe and Szegedy 2015, section 3.1), and the operation
before it is linear. So the scale goes into its kernel, and the shift becomes a bias. Keras 3 writes a batch norm as Mul
and AddV2, Keras 2 and TensorFlow 1 as FusedBatchNorm; any other chain of such operations is folded too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.constants import constant_edges
from savedmodel_bakery.exporter.optimisation.flat_graph import PASS_THROUGH, FlatGraph, Use, has_channels_last
from savedmodel_bakery.exporter.tensor_types import NodeDef

_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_RANKS = {"Conv2D": 4, "DepthwiseConv2dNative": 4, "MatMul": 2}


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
