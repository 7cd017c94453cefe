"""Replaces units, and the pools and concatenations between them, by quantised operations.

`_FusedQuantizedConv2D` and `_FusedQuantizedDepthwiseConv2D` are internal operations of TensorFlow. Unlike the public
`QuantizedConv2DWithBiasAndReluAndRequantize`, they also run where oneDNN is switched off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.optimisation.int8.codes import (
    MAX_WEIGHT,
    Codes,
    Range,
    add_codes,
    add_ends,
    add_kernel,
    quantise_depthwise_kernel,
    quantise_kernel,
)
from savedmodel_bakery.exporter.optimisation.int8.units import Unit, passed_inputs
from savedmodel_bakery.exporter.tensor_types import NodeDef

_LIMITS = {"Relu": math.inf, "Relu6": 6.0}


class Converter:
    """Converts the operations of a graph, in the order in which they are computed.

    Needs the ranges of all tensors that units and passed operations read and return.
    """

    def __init__(self, graph: FlatGraph, ranges: Mapping[str, Range]) -> None:
        self._graph, self._ranges = graph, dict(ranges)
        self._codes: dict[str, Codes] = {}
        self._padded: dict[tuple[str, tuple[int, ...]], str] = {}

    def convert(self, unit: Unit) -> None:
        """Replace a unit by one quantised operation."""
        graph, node = self._graph, self._graph.nodes[unit.convolution]
        is_depthwise = node.op == "DepthwiseConv2dNative"
        source, padding = self._padded_source(unit)
        codes = self.quantised(source)
        summand = self.quantised(unit.summand) if unit.summand is not None else None
        output = self._output_range(unit)
        (weights,) = graph.values([node.input[1]]).values()
        quantise_weights = quantise_depthwise_kernel if is_depthwise else quantise_kernel
        kernel = quantise_weights(weights, node.name)
        bias = (
            np.zeros(len(kernel.scales)) if unit.bias is None else graph.weights[unit.bias].numpy().astype(np.float64)
        )
        bias = bias + codes.range.low * kernel.sums - output.low + (summand.range.low if summand else 0)
        name, largest = unit.convolution, (kernel.scales * MAX_WEIGHT).astype(np.float32)
        tensors = [
            codes.tensor,
            add_kernel(graph, name, kernel.codes),
            graph.add_constant(f"{name}/bias", bias.astype(np.float32)),
            *([summand.tensor] if summand else []),
        ]
        ranges = [
            *add_ends(graph, name, codes.range),
            graph.add_constant(f"{name}/min_filter", -largest),
            graph.add_constant(f"{name}/max_filter", largest),
            *(add_ends(graph, name, summand.range) if summand else ()),
            *add_ends(graph, name, output),
        ]
        op = f"_FusedQuantized{'Depthwise' if is_depthwise else ''}Conv2D"
        made = graph.add(op, f"{name}/quantised", *tensors, *ranges, out_type=tf.quint8)
        _set_attributes(graph.nodes[made], node, len(ranges), padding, has_summand=summand is not None)
        self._replace(unit.last, Codes(made, output))

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
                f"Quantized{node.op}",
                f"{name}/quantised",
                *tensors,
                *add_ends(graph, name, codes[0].range),
                T=tf.quint8,
            )
            for attribute in ("ksize", "strides", "padding"):
                graph.nodes[made].attr[attribute].CopyFrom(node.attr[attribute])
        self._replace(name, Codes(made, codes[0].range))

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

    def quantised(self, tensor: str) -> Codes:
        """Return the codes of a float32 tensor."""
        if tensor not in self._codes:
            self._codes[tensor] = add_codes(self._graph, tensor, self._ranges[tensor])
        return self._codes[tensor]

    def _replace(self, tensor: str, codes: Codes) -> None:
        """Replace a float32 tensor by codes; operations that stay float32 read it dequantised, under the same name."""
        graph, (low, _) = self._graph, codes.range
        graph.rename(tensor)
        above = f"{tensor}/above_low" if low else tensor
        graph.put(
            "Dequantize", above, codes.tensor, *add_ends(graph, tensor, codes.range), T=tf.quint8, dtype=tf.float32
        )
        graph.nodes[above].attr["mode"].s = b"SCALED"
        if low:
            graph.put("AddV2", tensor, above, graph.add_constant(f"{tensor}/low", np.float32(low)), T=tf.float32)
        self._codes[tensor] = codes


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
