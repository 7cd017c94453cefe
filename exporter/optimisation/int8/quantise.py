"""Quantises a graph: finds its units, measures the ranges of their activations, and converts them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.optimisation.int8.conversion import Converter, passed_inputs, passed_operations
from savedmodel_bakery.exporter.optimisation.int8.ranges import measure_ranges
from savedmodel_bakery.exporter.optimisation.int8.units import find_units, multiply_adds


class Coverage(NamedTuple):
    """How much of a network is quantised.

    Attributes:
        convolutions: number of quantised convolutions.
        share: their part of the multiplications with weights, 0..1.
        filter_bytes: size of their filters.
    """

    convolutions: int
    share: float
    filter_bytes: int


def quantise(graph: FlatGraph, images: np.ndarray) -> Coverage:
    """Quantise the convolutions of a network, and the pools and concatenations between them; the rest stays float32.

    Args:
        graph: with batch norms folded; is changed.
        images: that the ranges of activations are measured with: normalised, float32
            [images, height, width, channels].
    """
    units = find_units(graph)
    if not units:
        return Coverage(0, 0.0, 0)
    passed = {name: passed_inputs(graph, graph.nodes[name]) for name in passed_operations(graph)}
    total = multiply_adds(graph, images[:1])
    tensors = [(unit.source, unit.last, unit.unpadded, unit.summand) for unit in units]
    measured = [tensor for of_unit in tensors for tensor in of_unit if tensor is not None]
    ranges = measure_ranges(graph, measured, images, [[name, *inputs] for name, inputs in passed.items()])
    converter, by_last = Converter(graph, ranges), {unit.last: unit for unit in units}
    for name in graph.order():
        if name in by_last:
            converter.convert(by_last[name])
        elif name in passed:
            converter.pass_on(name)
    return Coverage(len(units), sum(unit.multiply_adds for unit in units) / total, converter.filter_bytes)
