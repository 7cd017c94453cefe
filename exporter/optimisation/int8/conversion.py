"""Replaces units, and the pools and concatenations between them, by quantised operations.

`_FusedQuantizedConv2D` and `_FusedQuantizedDepthwiseConv2D` are internal operations of TensorFlow. Unlike the public
`QuantizedConv2DWithBiasAndReluAndRequantize`, they also run where oneDNN is switched off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph, has_channels_last
from savedmodel_bakery.exporter.optimisation.int8.codes import (
    MAX_WEIGHT,
    Range,
    quantise_depthwise_kernel,
    quantise_kernel,
)
from savedmodel_bakery.exporter.optimisation.int8.units import Unit
from savedmodel_bakery.exporter.tensor_types import NodeDef

_PASSED = frozenset({"MaxPool", "AvgPool", "ConcatV2"})
_LIMITS = {"Relu": math.inf, "Relu6": 6.0}


def passed_operations(graph: FlatGraph) -> list[str]:
    """Return the operations that can take codes and return codes of the same range: pools and concatenations.

    Global average pools stay float32: their output is too fine for the codes of their input.
    """
    passed = [name for name in graph.order() if _can_pass(graph.nodes[name])]
    averages = graph.shapes([name for name in passed if graph.nodes[name].op == "AvgPool"])
    return [name for name in passed if name not in averages or averages[name][1:3] != [1, 1]]


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


class _Codes(NamedTuple):
    """A quint8 tensor and the range of its codes."""

    tensor: str
    range: Range


class Converter:
    """Converts the operations of a graph, in the order in which they are computed.

    Needs the ranges of all tensors that units and passed operations read and return.
    """

    def __init__(self, graph: FlatGraph, ranges: Mapping[str, Range]) -> None:
        self._graph, self._ranges = graph, dict(ranges)
        self._codes: dict[str, _Codes] = {}
        self._padded: dict[tuple[str, tuple[int, ...]], str] = {}
        self.filter_bytes = 0

    def convert(self, unit: Unit) -> None:
        """Replace a unit by one quantised operation."""
        graph, node = self._graph, self._graph.nodes[unit.convolution]
        is_depthwise = node.op == "DepthwiseConv2dNative"
        source, padding = self._padded_source(unit)
        codes = self._quantised(source)
        summand = self._quantised(unit.summand) if unit.summand is not None else None
        output = self._output_range(unit)
        (weights,) = graph.values([node.input[1]]).values()
        if not np.isfinite(weights).all():
            raise SourceError(
                f"cannot quantise the network: the weights of its convolution {unit.convolution} have values that are "
                "not finite"
            )
        kernel = quantise_depthwise_kernel(weights) if is_depthwise else quantise_kernel(weights)
        self.filter_bytes += kernel.codes.nbytes
        bias = (
            np.zeros(len(kernel.scales)) if unit.bias is None else graph.weights[unit.bias].numpy().astype(np.float64)
        )
        bias = bias + codes.range.low * kernel.sums - output.low + (summand.range.low if summand else 0)
        name, largest = unit.convolution, (kernel.scales * MAX_WEIGHT).astype(np.float32)
        tensors = [
            codes.tensor,
            graph.add_constant(f"{name}/int8", kernel.codes, tf.qint8),
            graph.add_constant(f"{name}/bias", bias.astype(np.float32)),
            *([summand.tensor] if summand else []),
        ]
        ranges = [
            *self._ends(name, codes.range),
            graph.add_constant(f"{name}/min_filter", -largest),
            graph.add_constant(f"{name}/max_filter", largest),
            *(self._ends(name, summand.range) if summand else ()),
            *self._ends(name, output),
        ]
        op = f"_FusedQuantized{'Depthwise' if is_depthwise else ''}Conv2D"
        made = graph.add(op, f"{name}/quantised", *tensors, *ranges, out_type=tf.quint8)
        _set_attributes(graph.nodes[made], node, len(ranges), padding, has_summand=summand is not None)
        self._replace(unit.last, _Codes(made, output))

    def pass_on(self, name: str) -> None:
        """Replace a passed operation whose inputs are codes of one range; others stay."""
        graph, node = self._graph, self._graph.nodes[name]
        inputs = [self._codes.get(source) for source in passed_inputs(graph, node)]
        codes = [each for each in inputs if each is not None]
        if len(codes) < len(inputs) or len({each.range for each in codes}) > 1:
            return
        tensors = [each.tensor for each in codes]
        if node.op == "ConcatV2":
            made = graph.add(node.op, f"{name}/quantised", *tensors, node.input[-1], T=tf.quint8)
            graph.nodes[made].attr["Tidx"].CopyFrom(node.attr["Tidx"])
            graph.nodes[made].attr["N"].i = len(codes)
        else:
            made = graph.add(
                f"Quantized{node.op}", f"{name}/quantised", *tensors, *self._ends(name, codes[0].range), T=tf.quint8
            )
            for attribute in ("ksize", "strides", "padding"):
                graph.nodes[made].attr[attribute].CopyFrom(node.attr[attribute])
        self._replace(name, _Codes(made, codes[0].range))

    def _padded_source(self, unit: Unit) -> tuple[str, tuple[int, ...]]:
        """Return the tensor that the quantised operation reads, and the padding that it adds.

        It pads with the code 0, so a tensor in which that is not 0 is padded before it is quantised.
        """
        graph, source = self._graph, unit.source if unit.unpadded is None else unit.unpadded
        if not any(unit.padding) or self._range(source).low == 0:
            return source, unit.padding
        if unit.unpadded is not None:
            return unit.source, ()
        if (source, unit.padding) not in self._padded:
            amounts = graph.add_constant(f"{source}/padding", np.array(unit.padding, np.int32).reshape(4, 2))
            padded = graph.add("Pad", f"{source}/padded", source, amounts, T=tf.float32, Tpaddings=tf.int32)
            self._padded[source, unit.padding] = padded
            self._ranges[padded] = self._range(source)
        return self._padded[source, unit.padding], ()

    def _range(self, tensor: str) -> Range:
        return self._codes[tensor].range if tensor in self._codes else self._ranges[tensor]

    def _output_range(self, unit: Unit) -> Range:
        """Return the range of a unit's output; that of one with an activation begins where the activation does."""
        output = self._ranges[unit.last]
        if unit.activation is None:
            return output
        return Range.of(0.0, min(output.high, _LIMITS[unit.activation]))

    def _quantised(self, tensor: str) -> _Codes:
        """Return the codes of a float32 tensor."""
        if tensor not in self._codes:
            graph, (low, high) = self._graph, self._ranges[tensor]
            ends = [
                graph.add_constant(f"{tensor}/{name}", np.float32(end)) for name, end in (("low", low), ("high", high))
            ]
            made = graph.add("QuantizeV2", f"{tensor}/codes", tensor, *ends, T=tf.quint8)
            # oneDNN has kernels for these modes only.
            attributes = graph.nodes[made].attr
            attributes["mode"].s = b"MIN_FIRST" if low else b"SCALED"
            attributes["round_mode"].s = b"HALF_AWAY_FROM_ZERO" if low else b"HALF_TO_EVEN"
            self._codes[tensor] = _Codes(made, Range(low, high))
        return self._codes[tensor]

    def _replace(self, tensor: str, codes: _Codes) -> None:
        """Replace a float32 tensor by codes; operations that stay float32 read it dequantised, under the same name."""
        graph, (low, _) = self._graph, codes.range
        graph.rename(tensor)
        above = f"{tensor}/above_low" if low else tensor
        graph.put("Dequantize", above, codes.tensor, *self._ends(tensor, codes.range), T=tf.quint8, dtype=tf.float32)
        graph.nodes[above].attr["mode"].s = b"SCALED"
        if low:
            graph.put("AddV2", tensor, above, graph.add_constant(f"{tensor}/low", np.float32(low)), T=tf.float32)
        self._codes[tensor] = codes

    def _ends(self, name: str, codes: Range) -> list[str]:
        """Add the numbers of the codes 0 and 255 without the low, which the biases have."""
        return [
            self._graph.add_constant(f"{name}/zero", np.float32(0)),
            self._graph.add_constant(f"{name}/width", np.float32(codes.width)),
        ]


def _set_attributes(
    quantised: NodeDef, convolution: NodeDef, range_count: int, padding: tuple[int, ...], *, has_summand: bool
) -> None:
    """Set the attributes of a quantised operation from those of the convolution that it replaces."""
    attributes = quantised.attr
    types = {"Tinput": tf.quint8, "Tfilter": tf.qint8, "Tbias": tf.float32, "Tsummand": tf.quint8}
    tensors = [tf.quint8, tf.qint8, tf.float32, *([tf.quint8] if has_summand else [])]
    lists = {
        "Tdevice_inputs": tensors,
        "Thost_inputs": [tf.float32] * range_count,
        "Tdevice_outputs": [tf.quint8],
        "Thost_outputs": [tf.float32] * 2,
    }
    for name, dtype in types.items():
        attributes[name].type = dtype.as_datatype_enum
    for name, dtypes in lists.items():
        attributes[name].list.type.extend(dtype.as_datatype_enum for dtype in dtypes)
    attributes["is_filter_const"].b = attributes["is_bias_const"].b = True
    attributes["data_format"].s = b"NHWC"
    fused = [b"BiasAdd", *([b"Sum"] if has_summand else []), b"Relu", b"Requantize"]
    attributes["fused_ops"].list.s.extend(fused)
    attributes["strides"].list.i.extend(convolution.attr["strides"].list.i)
    attributes["dilations"].list.i.extend(convolution.attr["dilations"].list.i or [1, 1, 1, 1])
    attributes["padding"].s = b"EXPLICIT" if any(padding) else b"VALID"
    attributes["explicit_paddings"].list.i.extend(padding if any(padding) else ())
