"""Batch norm folded into the convolution, depthwise convolution or dense layer before it.

At inference a batch norm is y = scale · x + shift for each channel (Ioffe and Szegedy 2015, section 3.1), and what
comes before it is linear: so the scale goes into its kernel, and the shift remains as a bias. Keras 3 writes it as Mul
and AddV2, Keras 2 and TensorFlow 1 as FusedBatchNorm; any other chain of such operations is folded alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.constants import constant_edges
from savedmodel_bakery.exporter.optimisation.flat_graph import PASSING_ON, FlatGraph, Use, has_channels_last

_NORMS = frozenset({"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"})
_RANKS = {"Conv2D": 4, "DepthwiseConv2dNative": 4, "MatMul": 2}


class _Affine(NamedTuple):
    """scale · x + shift, both float64 [channels]."""

    scale: np.ndarray
    shift: np.ndarray


class _Chain(NamedTuple):
    """What linear operations one after the other come to, and the names of those."""

    affine: _Affine
    nodes: list[str]


def fold_batch_norm(graph: FlatGraph) -> None:
    """Fold what follows each linear operation, is linear itself, and is all that uses it.

    A kernel that several operations share stays as it is: it would have to be there several times.
    """
    edges = set(constant_edges(graph))
    linear = [node for node in graph.nodes.values() if _is_linear(node) and _name(node.input[1]) in edges]
    values = graph.values(sorted(edges - {_name(node.input[1]) for node in linear}))
    uses = graph.uses()
    read_once = graph.read_once()
    for node in linear:
        if node.input[1] in read_once:
            (kernel,) = graph.values([node.input[1]]).values()  # one at a time, as they are large
            chain = _follow(graph, node, _by_channel(node, kernel).shape[-1], values, uses)
            if any(graph.nodes[name].op not in PASSING_ON | {"BiasAdd"} for name in chain.nodes):
                _fold(graph, node, kernel, chain)


def _is_linear(node: Any) -> bool:
    """Whether it is an operation on float32 that is linear in a kernel, with channels last."""
    return (
        node.op in _RANKS
        and node.attr["T"].type == tf.float32.as_datatype_enum
        and has_channels_last(node)
        and not ("transpose_b" in node.attr and node.attr["transpose_b"].b)
    )


def _name(tensor: str) -> str:
    """A first output by its shorter name."""
    return tensor.removesuffix(":0")


def _by_channel(node: Any, kernel: np.ndarray) -> np.ndarray:
    """The kernel with output channels as its last axis; those of a depthwise one are [channels × multiplier]."""
    return kernel.reshape(*kernel.shape[:2], -1) if node.op == "DepthwiseConv2dNative" else kernel


def _follow(
    graph: FlatGraph, start: Any, channels: int, values: Mapping[str, np.ndarray], uses: Mapping[str, list[Use]]
) -> _Chain:
    """The linear operations after the node `start`, as long as each is all that uses the one before."""
    chain = _Chain(_Affine(np.ones(channels), np.zeros(channels)), [])
    current = start.name
    while len(uses[current]) == 1:
        name, place, _ = uses[current][0]
        if place is None or any(use.output for use in uses[name]):
            break
        affine = _after(chain.affine, graph.nodes[name], place, _RANKS[start.op], values)
        if affine is None:
            break
        chain = _Chain(affine, [*chain.nodes, name])
        current = name
    return chain


def _after(before: _Affine, node: Any, place: int, rank: int, values: Mapping[str, np.ndarray]) -> _Affine | None:
    """What `before` and then `node` come to; None where that isn't linear by channel."""
    if any(name.startswith("^") for name in node.input):
        return None
    if node.op in PASSING_ON:
        return before
    arguments = [values.get(_name(name)) for index, name in enumerate(node.input) if index != place]
    constants = [value.astype(np.float64) for value in arguments if value is not None]
    if len(constants) < len(arguments) or not has_channels_last(node):
        return None
    if node.op in _NORMS:
        if node.attr["is_training"].b or place != 0:
            return None
        gamma, beta, mean, variance = constants
        scale = gamma / np.sqrt(variance + node.attr["epsilon"].f)
        return _Affine(before.scale * scale, (before.shift - mean) * scale + beta)
    if len(constants) != 1 or (constant := _per_channel(constants[0], len(before.scale), rank)) is None:
        return None
    if node.op == "Mul":
        return _Affine(before.scale * constant, before.shift * constant)
    if node.op == "RealDiv" and place == 0:
        return _Affine(before.scale / constant, before.shift / constant)
    if node.op in ("Add", "AddV2", "BiasAdd"):
        return _Affine(before.scale, before.shift + constant)
    if node.op == "Sub" and place == 0:
        return _Affine(before.scale, before.shift - constant)
    if node.op == "Sub":
        return _Affine(-before.scale, constant - before.shift)
    return None


def _per_channel(constant: np.ndarray, channels: int, rank: int) -> np.ndarray | None:
    """`constant` as [channels], where broadcasting it to a tensor of `rank` does no more than that."""
    if constant.ndim > rank or (constant.size > 1 and not constant.shape[-1] == constant.size == channels):
        return None
    return np.broadcast_to(constant.reshape(-1), channels)


def _fold(graph: FlatGraph, node: Any, kernel: np.ndarray, chain: _Chain) -> None:
    """Scale the kernel of `node`, and put one bias in the place of the last operation of the chain."""
    scaled = (_by_channel(node, kernel) * chain.affine.scale).astype(kernel.dtype).reshape(kernel.shape)
    bias = chain.affine.shift.astype(kernel.dtype)
    if not (np.isfinite(scaled).all() and np.isfinite(bias).all()):
        return
    if (chain.affine.scale != 1).any():
        node.input[1] = graph.add_weight(f"{node.name}/kernel", scaled)
    graph.put("BiasAdd", chain.nodes[-1], node.name, graph.add_weight(f"{node.name}/bias", bias), T=tf.float32)
