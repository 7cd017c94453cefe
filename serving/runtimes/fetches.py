"""Finds the tensors that a run feeds and fetches, and chooses which to fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from savedmodel_bakery.serving.runtimes.direct_session import DirectSession
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_MAX_LISTS = 16


class FetchLists:
    """Limits how many lists of tensors a graph fetches.

    TensorFlow prepares every new list of fetches, and keeps that for ever. For a network, that takes seconds and tens
    of megabytes, so callers must not choose among too many lists. Beyond `max_lists`, a request fetches all outputs of
    its signature.
    """

    def __init__(self, signatures: Mapping[str, Any], *, max_lists: int = _MAX_LISTS) -> None:
        self._signatures = [
            (
                {info.name for info in signature.inputs.values()},
                tuple(sorted({info.name for info in signature.outputs.values()})),
            )
            for signature in signatures.values()
        ]
        self._max_lists = max_lists
        self._known: set[tuple[str, ...]] = set()

    def choose(self, feeds: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
        """Return which tensors to fetch for a request that feeds and needs others; each once, in a fixed order."""
        needed = tuple(sorted(set(names)))
        if needed not in self._known:
            if len(self._known) >= self._max_lists:
                fed = set(feeds)
                fitting = (outputs for inputs, outputs in self._signatures if inputs <= fed and {*needed} <= {*outputs})
                return min(fitting, key=len, default=needed)
            self._known.add(needed)
        return needed


class Port(NamedTuple):
    """A tensor in the graph, the runtime's handle of it, and its element type."""

    tensor: Any
    handle: Any
    dtype: DType


class PreparedRun(NamedTuple):
    """What a request feeds and fetches."""

    feeds: list[Port]  # in the order of the request
    names: tuple[str, ...]  # of the tensors to fetch
    fetches: list[Port]  # the same tensors
    results: list[tuple[int, DType]]  # for each tensor of the request, its place in `names`, and its element type


def find_port(graph: Any, name: str) -> Port:
    """Return the tensor NODE or NODE:N of a graph; raises INVALID_ARGUMENT or OUT_OF_RANGE if it does not exist."""
    tensor = find_tensor(graph, name)
    dtype = dtypes.of_number(tensor.dtype.base_dtype.as_datatype_enum)
    return Port(tensor, DirectSession.handle(tensor), dtype)


def find_tensor(graph: Any, name: str) -> Any:
    """Return the tensor NODE:N of a graph; NODE alone is its first output."""
    node, _, number = name.partition(":")
    try:
        operation, index = graph.get_operation_by_name(node), int(number or 0)
    except (KeyError, ValueError) as error:
        raise invalid_argument(
            f"Tensor {name}, specified in either feed_devices or fetch_devices was not found in the Graph"
        ) from error
    if index >= len(operation.outputs):
        raise StatusError(
            Code.OUT_OF_RANGE,
            f"Node '{node}' (type: '{operation.type}', num of outputs: {len(operation.outputs)}) does not have "
            f"output {index}",
        )
    return operation.outputs[index]
