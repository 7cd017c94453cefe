"""What a graph tells about its runs: whether they loop, may wait or read images, and how long they read them.

The image graph of a baked model reads the images of a run in one loop, which TensorFlow runs as one operation
(`exporter/graph_functions.py`); it lowers all other loops into their operations. So a trace of the run shows the time
that reading took.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from savedmodel_bakery.serving.runtimes.direct_session import has_state

# Passing operations to other threads and waking them takes 0.1 ms. A graph with few operations therefore runs in the
# caller's thread, one operation after the other, unless it has loops or operations that may wait for another one. So
# does one image on a baked model, which takes 5 % less CPU time: no operation waits, and one image bounds the run. For
# more images, the session's threads read the next while the network computes; for more callers, these few threads use
# the same memory again, which is faster than that of each caller's thread.
_SMALL_GRAPH_OPERATIONS = 256
_LOOPS = {"While", "_While", "StatelessWhile", "For", "Enter", "MapDefun"}
_STATEFUL_NON_BLOCKING = {
    *("Assert", "StatefulPartitionedCall"),
    *("HashTableV2", "InitializeTableFromTextFileV2", "InitializeTableV2", "LookupTableExportV2", "LookupTableFindV2"),
    *("LookupTableImportV2", "LookupTableSizeV2", "MergeV2Checkpoints", "RestoreV2", "SaveV2"),
    *("Assign", "AssignVariableOp", "DisableCopyOnRead", "ReadVariableOp", "ResourceGather"),
    *("VarHandleOp", "VarIsInitializedOp", "Variable", "VariableV2"),
}
_SHAPES = "_output_shapes"  # the attribute of operations
_LAZY = "_tf_data_function"  # the attribute of functions that run as one operation
_LAZY_LOOPS = ("While", "StatelessWhile")


def list_nodes(graph: Any) -> list[Any]:
    """Return the nodes of a GraphDef and of its functions."""
    return [*graph.node, *itertools.chain.from_iterable(function.node_def for function in graph.library.function)]


def row_bytes(nodes: Sequence[Any]) -> int:
    """Return the bytes per row of the largest float32 tensor that the operations state."""
    stated = (node.attr[_SHAPES].list.shape for node in nodes if _SHAPES in node.attr)
    sizes = ([dim.size for dim in shape.dim] for shape in itertools.chain.from_iterable(stated) if len(shape.dim) > 1)
    return 4 * max((math.prod(row) for first, *row in sizes if first < 0 <= min(row)), default=0)


def has_loops(nodes: Sequence[Any]) -> bool:
    """Return whether a run may last longer than its operations."""
    return any(node.op in _LOOPS or "Dataset" in node.op for node in nodes)


def is_small(nodes: Sequence[Any]) -> bool:
    """Return whether a graph runs faster in the caller's thread, and no operation in it may wait for another one."""
    operations = {node.op for node in nodes} - _STATEFUL_NON_BLOCKING
    return len(nodes) <= _SMALL_GRAPH_OPERATIONS and not has_loops(nodes) and not any(map(has_state, operations))


def reads_images(graph_def: Any) -> bool:
    """Return whether a GraphDef is that of a baked model, or contains one."""
    return any(
        _LAZY in function.attr and any(node.op in _LAZY_LOOPS for node in function.node_def)
        for function in graph_def.library.function
    )


def stages_s(metadata: Any, run_s: float) -> tuple[float, float]:
    """Return the seconds during which a run read images, and those of the network, which is the rest of its `run_s`."""
    spans = sorted(
        (node.all_start_micros, node.all_start_micros + node.all_end_rel_micros)
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if any(f" = {loop}(" in node.timeline_label for loop in _LAZY_LOOPS)
    )
    total = end = 0
    for start, stop in spans:  # a pipeline may read the images of two models at the same time
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    decoding_s = total / 1e6
    return decoding_s, max(0.0, run_s - decoding_s)
