"""Apply the steps of optimisation that a recipe names to a traced network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.optimisation.batch_norm import fold_batch_norm
from savedmodel_bakery.exporter.optimisation.constants import fold_constants, share_constants
from savedmodel_bakery.exporter.optimisation.cpu_kernels import suit_cpu_kernels
from savedmodel_bakery.exporter.optimisation.dead_operations import drop_dead_operations
from savedmodel_bakery.exporter.optimisation.flat_graph import FlatGraph, flatten
from savedmodel_bakery.exporter.optimisation.precision import lower_precision

# By the names of exporter.recipe.OPTIMISATIONS, in the order in which they help each other.
_STEPS: Mapping[str, Callable[[FlatGraph], None]] = {
    "drop-dead-operations": drop_dead_operations,
    "fold-batch-norm": fold_batch_norm,
    "fold-constants": fold_constants,
    "share-constants": share_constants,
    "suit-cpu-kernels": suit_cpu_kernels,
}


def optimise(traced: Any, steps: Collection[str], precision: str = "float32") -> tuple[Any, list[Any]]:
    """Optimise a network.

    Args:
        traced: a concrete function with one input and one output.
        steps: names of those to take.
        precision: what most of it is to be computed in, one of exporter.recipe.PRECISIONS.

    Returns:
        a concrete function of the same input that answers the same to a rounding error of that precision, and the
        variables that it reads, new ones where a step changed them. It is `traced` itself where there is no step, or
        where its graph can't be rewritten without risk.

    Raises:
        SourceError: there is nothing that another precision could do.
    """
    lower = precision != "float32"
    graph = flatten(traced) if steps or lower else None
    if graph is not None:
        for name, step in _STEPS.items():
            if name in steps:
                graph.prune()
                step(graph)
    if lower and (graph is None or not lower_precision(graph, tf.as_dtype(precision))):
        raise SourceError(
            f"precision is {precision}, but the network has nothing that could be computed in it: no convolution or "
            "product of matrices before its last, or control flow of TensorFlow 1; bake with --precision float32"
        )
    return (traced, list(traced.graph.variables)) if graph is None else graph.trace()
