"""Tensors of shapes that numpy cannot represent, such as [0, 2^62, 2^62] or 254 dimensions.

A Session takes and returns numpy arrays. These tensors go in and come out as messages, through operations that are
added to the graph when they are first needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.serving.runtimes.fetches import find_tensor
from savedmodel_bakery.wire import schema, tensors
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor


class UnrepresentableShapeRunner:
    """Runs a graph with inputs of which some have such a shape.

    `to_runtime` converts a tensor of any other shape to the array to feed.
    """

    def __init__(self, session: Any, to_runtime: Callable[[Tensor], np.ndarray]) -> None:
        self._session = session
        self._to_runtime = to_runtime
        self._lock = threading.Lock()
        self._readers: dict[DType, tuple[Any, Any]] = {}
        self._writers: dict[str, Any] = {}

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], options: Any) -> list[Tensor]:
        """See `Runtime.run`.

        Raises:
            tf.errors.OpError: the run failed.
        """
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
