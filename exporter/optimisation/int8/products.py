"""Finds the matrix products of a network that gain from 8-bit integers, as in transformers, and replaces them.

The operation `_QuantizedMatMul` takes codes and returns float32, so what is between two products, such as a gate, a
softmax or a norm, stays as it is. A 1 × 1 convolution that does not become a unit (see `units`) is a product too.

numbers ─► rows of codes ─► product and bias ─► numbers
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph, Use
from savedmodel_bakery.exporter.optimisation.int8.codes import MAX_WEIGHT, Codes, add_ends, add_kernel, quantise_kernel
from savedmodel_bakery.exporter.optimisation.int8.units import (
    ALL_PRODUCTS,
    CONVOLUTIONS,
    MIN_CHANNELS,
    is_pointwise,
    names_before_last,
    only_user,
    pays,
)
from savedmodel_bakery.exporter.tensor_types import NodeDef


class Product(NamedTuple):
    """A product of rows of numbers with a weight, and its bias."""

    node: str
    source: str  # tensor that it reads
    last: str  # name of the node whose output is that of the product
    bias: str | None  # name of the weight
    inputs: int  # numbers of a row
    output: tuple[int, ...]  # shape, with -1 for the number of images
    multiply_adds: int  # per image


def find_products(graph: FlatGraph, images: np.ndarray, excluded: Collection[str]) -> list[Product]:
    """Return the products that gain from codes, without `excluded` nodes.

    The network runs on the first two of the normalised images, float32 [images, height, width, channels], because
    static shapes may be unknown. The last operations with weights stay float32, because scores would be too coarse
    otherwise.
    """
    uses = graph.uses()
    inputs = {
        name: count
        for name in names_before_last(graph, CONVOLUTIONS | ALL_PRODUCTS)
        if name not in excluded and (count := _inputs_per_row(graph, graph.nodes[name])) >= MIN_CHANNELS
    }
    sources = {name: graph.origin(graph.nodes[name].input[0]) for name in inputs}
    tensors = [*inputs, *sources.values()]
    measure = graph.function(tensors, tf.shape)
    runs = [measure(tf.constant(images[:count])) for count in (1, 2)]
    one, two = ({name: shape.numpy().tolist() for name, shape in zip(tensors, run, strict=True)} for run in runs)
    return [
        _product_of(graph, name, inputs[name], one[name], uses)
        for name, source in sources.items()
        if one[name][1:] == two[name][1:]  # the number of images is in the first axis
        and (graph.nodes[name].op != "Conv2D" or one[source][3] == inputs[name])  # else it has groups
        and pays(math.prod(one[name]) * inputs[name], math.prod(one[source]))
    ]


def convert_product(graph: FlatGraph, product: Product, codes: Codes) -> None:
    """Replace a product by a quantised one that reads the codes of its source."""
    name = product.node
    rows = graph.add_constant(f"{name}/row", np.array([-1, product.inputs], np.int32))
    (weights,) = graph.values([graph.nodes[name].input[1]]).values()
    kernel = quantise_kernel(weights.reshape(1, 1, product.inputs, -1), name)
    bias = 0 if product.bias is None else graph.weights[product.bias].numpy().astype(np.float64)
    largest = (kernel.scales * MAX_WEIGHT).astype(np.float32)
    made = graph.add(
        "_QuantizedMatMul",
        f"{name}/quantised",
        graph.add("Reshape", f"{name}/rows", codes.tensor, rows, T=tf.quint8, Tshape=tf.int32),
        add_kernel(graph, name, kernel.codes.reshape(product.inputs, -1)),
        graph.add_constant(f"{name}/bias", (bias + codes.range.low * kernel.sums).astype(np.float32)),
        *add_ends(graph, name, codes.range),
        graph.add_constant(f"{name}/min_weight", -largest),
        graph.add_constant(f"{name}/max_weight", largest),
        T1=tf.quint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=tf.float32,
    )
    _set_attributes(graph.nodes[made])
    shape = graph.add_constant(f"{name}/output", np.array(product.output, np.int32))
    graph.put("Reshape", product.last, made, shape, T=tf.float32, Tshape=tf.int32)


def _inputs_per_row(graph: FlatGraph, node: NodeDef) -> int:
    """Return how many numbers of a row are multiplied with a weight; 0 if the node is no such product.

    They are the last axes of the input and the first of the weight.
    """
    weight = graph.weights.get(graph.origin(node.input[1])) if len(node.input) == 2 else None
    if weight is None or node.attr["T"].type != tf.float32.as_datatype_enum:
        return 0
    shape, attributes = weight.shape.as_list(), node.attr
    match node.op:
        case "MatMul" if not (attributes["transpose_a"].b or attributes["transpose_b"].b):
            return int(shape[0])
        case "BatchMatMulV2" if len(shape) == 2 and not (attributes["adj_x"].b or attributes["adj_y"].b):
            return int(shape[0])
        case "Conv2D" if is_pointwise(graph, node):
            return int(shape[2])
        case "Einsum":
            numbers, axes, result = re.split(",|->", attributes["equation"].s.decode())
            for count in range(1, len(axes)):
                if numbers.endswith(axes[:count]) and result == numbers[:-count] + axes[count:]:
                    return int(math.prod(shape[:count]))
    return 0


def _product_of(
    graph: FlatGraph, name: str, inputs: int, shape: Sequence[int], uses: Mapping[str, list[Use]]
) -> Product:
    last, bias = name, None
    user = only_user(graph, name, uses)
    if user is not None and user.op == "BiasAdd" and graph.origin(user.input[1]) in graph.weights:
        last, bias = user.name, graph.origin(user.input[1])
    source = graph.origin(graph.nodes[name].input[0])
    return Product(name, source, last, bias, inputs, (-1, *shape[1:]), math.prod(shape) * inputs)


def _set_attributes(quantised: NodeDef) -> None:
    attributes = quantised.attr
    lists = {
        "Tdevice_inputs": [tf.quint8, tf.qint8, tf.float32],
        "Thost_inputs": [tf.float32] * 4,
        "Tdevice_outputs": [tf.float32],
        "Thost_outputs": [],
    }
    for name, dtypes in lists.items():
        attributes[name].list.type.extend(dtype.as_datatype_enum for dtype in dtypes)
    attributes["is_weight_const"].b = attributes["is_bias_const"].b = True
    attributes["fused_ops"].list.s.extend([b"BiasAdd", b"Dequantize"])
    attributes["input_quant_mode"].s = attributes["output_quant_mode"].s = b"SCALED"
