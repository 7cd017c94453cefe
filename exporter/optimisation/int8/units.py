"""Finds the parts of a network that one quantised operation can compute: a convolution with what follows it.

convolution ─► bias ─► add another unit's output ─► Relu or Relu6
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph, Use, has_channels_last, node_name
from savedmodel_bakery.exporter.tensor_types import NodeDef

CONVOLUTIONS = frozenset({"Conv2D", "DepthwiseConv2dNative"})
PRODUCTS = frozenset({"MatMul"})
ALL_PRODUCTS = PRODUCTS | {"BatchMatMulV2", "Einsum"}
_ACTIVATIONS = frozenset({"Relu", "Relu6"})
_ADDITIONS = frozenset({"Add", "AddV2"})
_PASSED = frozenset({"MaxPool", "AvgPool", "ConcatV2"})
_NO_PADDING = (0,) * 8

# A convolution of three colours is a small part of the network, and its input, the image, stays in full precision.
MIN_CHANNELS = 8

# What an operation in int8 costs beside its multiplications, in multiplications: once, and per number that is quantised
# or dequantised. Measured with TensorFlow 2.21 on an AMD EPYC (family 26, AVX512-VNNI), one thread, one image: of
# EfficientNet-B0, products that these numbers select took 0.64 to 0.96 of the time, and others 0.97 to 1.12; those of
# ConvNeXt-Tiny, which they all select, 0.40 to 0.58.
_PER_OPERATION = 5_000_000
_PER_NUMBER = 75


@dataclass(frozen=True)
class Unit:
    """A convolution that can be quantised, its bias and activation, and the addition before the activation."""

    convolution: str  # name of the node
    source: str  # float tensor that it reads
    last: str  # name of the node whose output is that of the unit
    bias: str | None  # name of the weight
    activation: str | None  # `Relu` or `Relu6`
    summand: str | None  # output of another unit that is added; the quantised operation overwrites it
    padding: tuple[int, ...]  # of zeros around the source: before and after, by axis
    unpadded: str | None  # tensor whose Pad is the source, if the convolution can pad it itself
    multiply_adds: int  # per image


def find_units(graph: FlatGraph, passed: Mapping[str, Sequence[str]]) -> list[Unit]:
    """Return the units in the order in which the network computes them; see `passed_operations`.

    The last operation with weights stays float32, because scores would be too coarse otherwise, and so do convolutions
    with few input channels, with groups or of one pixel, such as those of gates.
    """
    order, uses = graph.order(), graph.uses()
    before_last = names_before_last(graph, CONVOLUTIONS | PRODUCTS)
    convolutions = [name for name in before_last if _is_supported(graph, graph.nodes[name])]
    sources = {name: graph.origin(graph.nodes[name].input[0]) for name in convolutions}
    shapes = graph.shapes([*convolutions, *sources.values()])
    units: dict[str, Unit] = {}
    for name in convolutions:
        if _has_supported_shapes(graph, graph.nodes[name], shapes[sources[name]], shapes[name]):
            unit = _unit_of(graph, name, shapes[sources[name]], shapes[name], uses)
            units[unit.last] = unit
    units = _drop_alone(graph, units, shapes, passed)
    _take_additions(graph, units, order, uses)
    return sorted(units.values(), key=lambda unit: order.index(unit.last))


def names_before_last(graph: FlatGraph, operations: Set[str]) -> list[str]:
    """Return the nodes with one of the operations that another of these depends on, in the order of computing them."""
    linear = [name for name in graph.order() if graph.nodes[name].op in operations]
    needed = graph.dependencies(source for name in linear for source in graph.nodes[name].input)
    return [name for name in linear if name in needed]


def passed_operations(graph: FlatGraph) -> dict[str, list[str]]:
    """Return the inputs of operations that can take codes and return codes of one range: pools and concatenations.

    Global average pools stay float32: their output is too fine for the codes of their input.
    """
    passed = [name for name in graph.order() if _can_pass(graph.nodes[name])]
    averages = graph.shapes([name for name in passed if graph.nodes[name].op == "AvgPool"])
    return {
        name: passed_inputs(graph, graph.nodes[name])
        for name in passed
        if name not in averages or averages[name][1:3] != [1, 1]
    }


def _can_pass(node: NodeDef) -> bool:
    return (
        node.op in _PASSED
        and node.attr["T"].type == tf.float32.as_datatype_enum
        and (node.op == "ConcatV2" or (has_channels_last(node) and node.attr["padding"].s != b"EXPLICIT"))
        and not any(source.startswith("^") for source in node.input)
    )


def passed_inputs(graph: FlatGraph, node: NodeDef) -> list[str]:
    """Return the tensors that such an operation takes."""
    inputs = node.input[:-1] if node.op == "ConcatV2" else node.input[:1]
    return [graph.origin(source) for source in inputs]


def _drop_alone(
    graph: FlatGraph,
    units: Mapping[str, Unit],
    shapes: Mapping[str, tf.TensorShape],
    passed: Mapping[str, Sequence[str]],
) -> dict[str, Unit]:
    """Return the units that are worth their codes: they get them from others, hand them to others, or are large.

    A 1 × 1 convolution whose output is read as numbers, as before a swish, is left to `products`, which return them.
    """
    carriers, uses = _carriers(graph, passed), graph.uses()
    kept, previous = dict(units), -1
    while previous != len(kept):
        previous = len(kept)
        given = set(kept)
        for name, inputs in carriers.items():
            given.update([name] if given.issuperset(inputs) else ())
        wanted = {tensor for unit in kept.values() for tensor in (unit.source, unit.unpadded)}
        for name, inputs in reversed(carriers.items()):
            wanted.update(inputs if name in wanted else ())
        kept = {
            last: unit
            for last, unit in kept.items()
            if last in wanted
            or (
                (unit.source in given or _is_large(unit, shapes))
                and (
                    unit.activation is not None
                    or not is_pointwise(graph, graph.nodes[unit.convolution])
                    or (unit.source in given and _is_added(graph, last, uses))
                )
            )
        }
    return kept


def _carriers(graph: FlatGraph, passed: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the operations that may hand on the codes of their inputs, in the order in which they are computed."""
    carriers = dict[str, Sequence[str]]()
    for name in graph.order():
        node = graph.nodes[name]
        if name in passed:
            carriers[name] = passed[name]
        elif node.op in _ADDITIONS | _ACTIVATIONS:
            carriers[name] = [graph.origin(source) for source in node.input]
    return carriers


def _is_added(graph: FlatGraph, name: str, uses: Mapping[str, list[Use]]) -> bool:
    user = graph.nodes.get(uses[name][0].node) if len(uses[name]) == 1 else None
    return user is not None and user.op in _ADDITIONS


def _is_large(unit: Unit, shapes: Mapping[str, tf.TensorShape]) -> bool:
    return pays(unit.multiply_adds, sum(math.prod(shapes[tensor][1:]) for tensor in (unit.source, unit.convolution)))


def pays(multiply_adds: int, numbers: int) -> bool:
    """Return whether an operation gains from int8 if this many numbers must be quantised or dequantised for it."""
    return multiply_adds >= _PER_OPERATION + _PER_NUMBER * numbers


def is_pointwise(graph: FlatGraph, convolution: NodeDef) -> bool:
    """Return whether each output pixel of a convolution depends on one input pixel, at the same place."""
    attributes = convolution.attr
    return bool(
        has_channels_last(convolution)
        and set(attributes["strides"].list.i) == {1}
        and attributes["padding"].s != b"EXPLICIT"
        and tuple(graph.weights[graph.origin(convolution.input[1])].shape[:2]) == (1, 1)
    )


def multiply_adds(graph: FlatGraph, image: np.ndarray) -> int:
    """Return the multiplications with weights per image, of convolutions and matrix products.

    The network runs on the normalised image, float32 [1, height, width, channels], because the static shape of a
    product over all pixels has no number of rows.
    """
    nodes = [
        node
        for node in graph.nodes.values()
        if node.op in CONVOLUTIONS | ALL_PRODUCTS and _is_weight(graph, node.input[1])
    ]
    outputs = graph.function([node.name for node in nodes], tf.shape)(tf.constant(image))
    weights = graph.shapes([node.input[1] for node in nodes])
    return sum(
        _multiply_adds(node, output.numpy().tolist(), weights[node.input[1]])
        for node, output in zip(nodes, outputs, strict=True)
        if weights[node.input[1]].is_fully_defined()
    )


def _is_weight(graph: FlatGraph, tensor: str) -> bool:
    names = graph.dependencies([tensor])
    return all(name in graph.weights or graph.nodes[name].op != "Placeholder" for name in names)


def _multiply_adds(node: NodeDef, output: Sequence[int], weights: Sequence[int]) -> int:
    """Return the multiplications of an operation, from the shapes of its output and of its weights."""
    match node.op:
        case "Conv2D":
            per_number = weights[:3]
        case "DepthwiseConv2dNative":
            per_number = weights[:2]
        case "Einsum":
            operands, _, result = node.attr["equation"].s.decode().partition("->")
            axes = zip(operands.partition(",")[2], weights, strict=False)
            per_number = [size for axis, size in axes if axis not in result]
        case _:
            is_transposed = node.attr["transpose_b" if node.op == "MatMul" else "adj_y"].b
            per_number = weights[-1:] if is_transposed else weights[-2:-1]
    return math.prod(output) * math.prod(per_number)


def _is_supported(graph: FlatGraph, node: NodeDef) -> bool:
    return (
        node.op in CONVOLUTIONS
        and len(node.input) == 2
        and node.attr["T"].type == tf.float32.as_datatype_enum
        and has_channels_last(node)
        and graph.origin(node.input[1]) in graph.weights
    )


def _has_supported_shapes(graph: FlatGraph, node: NodeDef, source: tf.TensorShape, output: tf.TensorShape) -> bool:
    if not (source[1:].is_fully_defined() and output[1:].is_fully_defined()) or output[1:3] == [1, 1]:
        return False
    _, _, channels, filters = graph.weights[graph.origin(node.input[1])].shape
    if node.op == "DepthwiseConv2dNative":
        return bool(filters == 1 and set(_spatial(node, "dilations")) == {1})
    return bool(channels == source[3] and channels >= MIN_CHANNELS)


def _unit_of(
    graph: FlatGraph, name: str, source: tf.TensorShape, output: tf.TensorShape, uses: Mapping[str, list[Use]]
) -> Unit:
    node = graph.nodes[name]
    bias, activation, last = None, None, name
    while activation is None and (user := only_user(graph, last, uses)) is not None:
        if user.op == "BiasAdd" and bias is None and last == name and graph.origin(user.input[1]) in graph.weights:
            bias = graph.origin(user.input[1])
        elif user.op in _ACTIVATIONS:
            activation = user.op
        else:
            break
        last = user.name
    weights = graph.weights[graph.origin(node.input[1])].shape
    padding, unpadded = _padding(node, weights, source), None
    tensor = graph.origin(node.input[0])
    if padding == _NO_PADDING and (pad := _zero_padding(graph, graph.nodes[node_name(tensor)])) is not None:
        padding, unpadded = pad, graph.origin(graph.nodes[node_name(tensor)].input[0])
    return Unit(
        name, tensor, last, bias, activation, None, padding, unpadded, _multiply_adds(node, output[1:], weights)
    )


def only_user(graph: FlatGraph, name: str, uses: Mapping[str, list[Use]]) -> NodeDef | None:
    """Return the node that reads the output of a node as its first input, if there is no other reader."""
    if len(uses[name]) != 1:
        return None
    node, position, _ = uses[name][0]
    return graph.nodes[node] if position == 0 and node else None


def _spatial(node: NodeDef, attribute: str) -> tuple[int, int]:
    values = node.attr[attribute].list.i
    return (values[1], values[2]) if values else (1, 1)


def _padding(node: NodeDef, kernel: tf.TensorShape, source: tf.TensorShape) -> tuple[int, ...]:
    match node.attr["padding"].s:
        case b"EXPLICIT":
            return tuple(node.attr["explicit_paddings"].list.i)
        case b"VALID":
            return _NO_PADDING
    amounts = []
    spatial = zip(source[1:3], kernel[:2], _spatial(node, "strides"), _spatial(node, "dilations"), strict=True)
    for side, taps, stride, dilation in spatial:
        total = max((math.ceil(side / stride) - 1) * stride + (taps - 1) * dilation + 1 - side, 0)
        amounts += [total // 2, total - total // 2]
    return (0, 0, *amounts, 0, 0)


def _zero_padding(graph: FlatGraph, node: NodeDef) -> tuple[int, ...] | None:
    """Return what a Pad node adds around images; None for other nodes."""
    if node.op != "Pad" or any(source.startswith("^") for source in node.input):
        return None
    amounts = graph.nodes[node_name(graph.origin(node.input[1]))]
    if amounts.op != "Const":
        return None
    values = tuple(tf.make_ndarray(amounts.attr["value"].tensor).reshape(-1).tolist())
    return values if len(values) == 8 and not any(values[:2] + values[6:]) else None


def _take_additions(graph: FlatGraph, units: dict[str, Unit], order: list[str], uses: Mapping[str, list[Use]]) -> None:
    """Let a convolution without activation add the other operand of the addition after it.

    The quantised operation overwrites that operand, so all other readers of it must come before the convolution, and
    both must have the same shape: the operation does not broadcast.
    """
    position = {name: number for number, name in enumerate(order)}
    operands = {
        name: [graph.origin(source) for source in graph.nodes[name].input]
        for name in order
        if graph.nodes[name].op in _ADDITIONS and len(graph.nodes[name].input) == 2
    }
    shapes = graph.shapes([source for sources in operands.values() for source in sources])
    for name, sources in operands.items():
        later, earlier = sorted(sources, key=lambda tensor: -position[node_name(tensor)])
        # The number of images may be unknown, but in both.
        if not shapes[later][1:].is_fully_defined() or shapes[later].as_list() != shapes[earlier].as_list():
            continue
        for last, summand in ((later, earlier), (earlier, later)):
            unit = units.get(last)
            if unit is None or not _can_add(graph, unit, summand, name, units, uses):
                continue
            del units[last]
            user = only_user(graph, name, uses)
            if user is not None and user.op in _ACTIVATIONS:
                unit = replace(unit, last=user.name, activation=user.op, summand=summand)
            else:
                unit = replace(unit, last=name, summand=summand)
            units[unit.last] = unit
            break


def _can_add(
    graph: FlatGraph,
    unit: Unit,
    summand: str,
    addition: str,
    units: Mapping[str, Unit],
    uses: Mapping[str, list[Use]],
) -> bool:
    return (
        unit.activation is None
        and unit.summand is None
        and graph.nodes[unit.convolution].op == "Conv2D"
        and len(uses[unit.last]) == 1
        and summand in units
        and summand != unit.last
        and _is_read_before(graph, unit, summand, addition, uses)
    )


def _is_read_before(graph: FlatGraph, unit: Unit, summand: str, addition: str, uses: Mapping[str, list[Use]]) -> bool:
    """Return whether all other readers of the summand come before the convolution of the unit.

    The readers of a Pad count as readers of the summand, because a convolution that adds the padding itself reads it.
    """
    readers = {use.node for use in uses[summand]} - {addition}
    pads = [name for name in readers if name and graph.nodes[name].op == "Pad"]
    readers.update(use.node for pad in pads for use in uses[pad])
    return readers <= graph.dependencies(graph.nodes[unit.convolution].input)
