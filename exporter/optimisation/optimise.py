"""Applies the optimisation steps that a recipe lists to a traced network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.optimisation.cpu_kernels import suit_cpu_kernels
from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph
from savedmodel_bakery.exporter.optimisation.folding import fold_batch_norm, fold_constants, share_constants
from savedmodel_bakery.exporter.optimisation.inlining import flatten
from savedmodel_bakery.exporter.optimisation.int8.quantise import Coverage, quantise
from savedmodel_bakery.exporter.optimisation.precision import lower_precision
from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, Variable


def drop_dead_operations(graph: FlatGraph) -> None:
    """Bypass operations that have no effect in a served network, such as identities and stopped gradients."""
    for node in graph.nodes.values():
        for position, name in enumerate(node.input):
            if not name.startswith("^"):
                node.input[position] = graph.origin(name)
    graph.outputs = [graph.origin(output) for output in graph.outputs]


# By name in exporter.recipe.OPTIMISATIONS, in the order in which they are applied: each prepares the next.
_STEPS: Mapping[str, Callable[[FlatGraph], None]] = {
    "drop-dead-operations": drop_dead_operations,
    "fold-batch-norm": fold_batch_norm,
    "fold-constants": fold_constants,
    "share-constants": share_constants,
    "suit-cpu-kernels": suit_cpu_kernels,
}

MAX_FILTER_BYTES = 2**31 - 2**24
"""A SavedModel's graph is one protobuf message, of 2 GiB at most; 16 MiB are for the rest of the graph."""


def optimise(
    network: ConcreteFunction, steps: Collection[str], precision: str = "float32"
) -> tuple[ConcreteFunction, list[Variable]]:
    """Optimise a network from one input, float32 [batch, …], to one output or a dict of them, float32 [batch, …].

    Returns an equivalent function, equal up to rounding errors of the precision in which most of it is computed, and
    the variables it reads; steps may replace variables. It is `network` itself if there are no steps or its graph can't
    be rewritten safely.
    """
    is_lower_precision = precision != "float32"
    graph = flatten(network) if steps or is_lower_precision else None
    if graph is not None:
        _apply(graph, steps)
    if is_lower_precision and (graph is None or not lower_precision(graph, tf.as_dtype(precision))):
        raise SourceError(
            f"precision {precision} has no effect on this network: it has no convolution or matrix product before its "
            "last, or uses control flow of TensorFlow 1; bake with --precision float32"
        )
    return (network, list(network.graph.variables)) if graph is None else graph.trace()


def optimise_int8(
    network: ConcreteFunction, steps: Collection[str], images: np.ndarray
) -> tuple[ConcreteFunction, list[Variable], Coverage]:
    """Optimise a network as `optimise` does, and quantise its convolutions to 8-bit integers.

    Int8 takes the place of the step `suit-cpu-kernels`. The images to calibrate with are normalised, float32
    [images, height, width, channels]. Returns a function that approximates the network, the variables it reads, and how
    much of it is quantised.
    """
    graph = flatten(network)
    coverage = Coverage(0, 0.0, 0)
    if graph is not None:
        _apply(graph, set(steps) - {"suit-cpu-kernels"})
        graph.prune()
        coverage = quantise(graph, images)
        graph.prune()
    if graph is None or not coverage.convolutions:
        raise SourceError(
            "precision int8 has no effect on this network: it has no convolution of 8 or more input channels in one "
            "group before its last layer, or uses control flow of TensorFlow 1; bake with --precision float32"
        )
    if coverage.filter_bytes > MAX_FILTER_BYTES:
        raise SourceError(
            f"the int8 filters of this network have {coverage.filter_bytes} bytes: they are part of the graph, "
            f"which can have at most {MAX_FILTER_BYTES}; bake with --precision float32"
        )
    return *graph.trace(), coverage


def _apply(graph: FlatGraph, steps: Collection[str]) -> None:
    for name, step in _STEPS.items():
        if name in steps:
            graph.prune()
            step(graph)
