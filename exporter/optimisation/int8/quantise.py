"""Quantises a graph: finds its units, measures the ranges of their activations, and converts them.

Also measures how much faster the quantised network is on this machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.optimisation.int8.codes import measure_ranges
from savedmodel_bakery.exporter.optimisation.int8.conversion import Converter
from savedmodel_bakery.exporter.optimisation.int8.products import convert_product, find_products
from savedmodel_bakery.exporter.optimisation.int8.units import (
    find_units,
    multiply_adds,
    passed_operations,
)
from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, NormalisedBatch

BATCH_SIZES = (1, 8)
_ROUNDS = 9
_MIN_ROUNDS = 3
_MAX_SECONDS = 4.0


class Coverage(NamedTuple):
    """How much of a network is quantised."""

    layers: int  # convolutions and matrix products
    share: float  # their part of the multiplications with weights, 0..1


def quantise(graph: FlatGraph, images: np.ndarray) -> Coverage:
    """Quantise convolutions and matrix products, and the pools and concatenations between them.

    The rest stays float32. Changes the graph, whose batch norms must be folded. The ranges of activations are measured
    with the images: normalised, float32 [images, height, width, channels].
    """
    passed = passed_operations(graph)
    units = find_units(graph, passed)
    products = find_products(graph, images, {unit.convolution for unit in units})
    if not units and not products:
        return Coverage(0, 0.0)
    passed = passed if units else {}
    total = multiply_adds(graph, images[:1])
    tensors = [(unit.source, unit.last, unit.unpadded, unit.summand) for unit in units]
    measured = [tensor for of_unit in tensors for tensor in of_unit if tensor is not None]
    measured += [product.source for product in products]
    ranges = measure_ranges(graph, measured, images, [[name, *inputs] for name, inputs in passed.items()])
    converter, by_last = Converter(graph, ranges), {unit.last: unit for unit in units}
    by_node = {product.node: product for product in products}
    for name in graph.order():
        if name in by_last:
            converter.convert(by_last[name])
        elif name in passed:
            converter.pass_on(name)
        elif name in by_node:
            convert_product(graph, by_node[name], converter.quantised(by_node[name].source))
    done = sum(unit.multiply_adds for unit in units) + sum(product.multiply_adds for product in products)
    return Coverage(len(units) + len(products), done / total)


@dataclass(frozen=True)
class Speed:
    """The median time of both networks for a batch of one size, in milliseconds per image."""

    batch: int
    float32_ms: float
    int8_ms: float

    @property
    def ratio(self) -> float:
        """How many times as fast as float32 the quantised network is."""
        return self.float32_ms / self.int8_ms


def compare_speed(float32: ConcreteFunction, int8: ConcreteFunction, image: np.ndarray) -> list[Speed]:
    """Run two networks in turns on a normalised image, and return their times for each of `BATCH_SIZES`."""
    return [_compare(float32, int8, tf.constant(np.stack([image] * batch))) for batch in BATCH_SIZES]


def _compare(float32: ConcreteFunction, int8: ConcreteFunction, batch: NormalisedBatch) -> Speed:
    images = len(batch)
    times: list[tuple[float, float]] = []
    for network in (float32, int8):
        _run_ms(network, batch)  # prepares it
    end = time.monotonic() + _MAX_SECONDS
    while len(times) < _MIN_ROUNDS or (len(times) < _ROUNDS and time.monotonic() < end):
        times.append((_run_ms(float32, batch), _run_ms(int8, batch)))
    float32_ms, int8_ms = np.median(times, axis=0) / images
    return Speed(images, float(float32_ms), float(int8_ms))


def _run_ms(network: ConcreteFunction, batch: NormalisedBatch) -> float:
    start = time.perf_counter()
    for output in tf.nest.flatten(network(batch)):
        output.numpy()  # waits for it
    return (time.perf_counter() - start) * 1e3
