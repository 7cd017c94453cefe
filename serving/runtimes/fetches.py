"""Finds the tensors that a run feeds and fetches, chooses which to fetch, and passes those that are no numpy arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.serving.runtimes.direct_session import DirectSession
from savedmodel_bakery.wire import dtypes, schema, tensors
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor

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


class UnrepresentableShapeRunner:
    """Runs a graph with tensors of shapes that numpy cannot represent, such as [0, 2^62, 2^62] or 254 dimensions.

    A Session takes and returns numpy arrays. These tensors go in and come out as messages, through operations that are
    added to the graph when they are first needed. `to_runtime` converts a tensor of any other shape to an array.
    """

    def __init__(self, session: Any, to_runtime: Callable[[Tensor], np.ndarray]) -> None:
        self._session = session
        self._to_runtime = to_runtime
        self._lock = threading.Lock()
        self._readers: dict[DType, tuple[Any, Any]] = {}
        self._writers: dict[str, Any] = {}

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], options: Any) -> list[Tensor]:
        """See `Runtime.run`; raises tf.errors.OpError if the run failed."""
        graph = self._session.graph
        with self._lock, graph.as_default():
            fed = {find_tensor(graph, name): self._feed(tensor) for name, tensor in feeds.items()}
            written = [self._write(find_tensor(graph, name)) for name in fetches]
        outputs = self._session.run(written, fed, options)
        return [decode_tensor(schema.TensorProto.FromString(content)) for content in outputs]

    def _feed(self, tensor: Tensor) -> Any:
        """Return the value to feed: the array, or the handle of a tensor that the Session parsed from a message."""
        if tensor.shape is None:
            return self._to_runtime(tensor)
        if tensor.dtype not in self._readers:
            content = tf.compat.v1.placeholder(tf.string, [])
            parsed = tf.io.parse_tensor(content, tf.as_dtype(tensor.dtype.number))
            self._readers[tensor.dtype] = content, tf.compat.v1.get_session_handle(parsed)
        content, handle = self._readers[tensor.dtype]
        proto = tensors.encode_tensor(tensor.array, dtype=tensor.dtype, shape=tensor.shape)
        return self._session.run(handle, {content: proto.SerializeToString()})

    def _write(self, tensor: Any) -> Any:
        if tensor.name not in self._writers:
            self._writers[tensor.name] = tf.io.serialize_tensor(tensor)
        return self._writers[tensor.name]
