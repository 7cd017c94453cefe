"""Tensors of shapes that numpy cannot have: [0, 2^62, 2^62] is one to TensorFlow, and so are 254 dimensions.

What a Session is fed and gives is numpy's. These go in and come out as messages, by operations that are added to the
graph when the first of them comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.wire import schema, tensors
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.tensors import Tensor, decode_tensor


class UnrepresentableShapeRunner:
    """Runs a graph where what it is fed holds such a tensor.

    Args:
        session: of the graph.
        find: a graph's tensor by name.
        feed: what a Session takes for a tensor whose shape numpy has.
    """

    def __init__(self, session: Any, find: Callable[[Any, str], Any], feed: Callable[[Tensor], np.ndarray]) -> None:
        self._session = session
        self._find = find
        self._feed_array = feed
        self._lock = threading.Lock()
        self._readers: dict[DType, tuple[Any, Any]] = {}
        self._writers: dict[str, Any] = {}

    def run(self, feeds: Mapping[str, Tensor], fetches: Sequence[str], options: Any) -> list[Tensor]:
        """See `Runtime.run`.

        Raises:
            tf.errors.OpError: what the runtime said.
        """
        graph = self._session.graph
        with self._lock, graph.as_default():
            fed = {self._find(graph, name): self._feed(tensor) for name, tensor in feeds.items()}
            written = [self._write(self._find(graph, name)) for name in fetches]
        found = self._session.run(written, fed, options)
        return [decode_tensor(schema.TensorProto.FromString(content)) for content in found]

    def _feed(self, tensor: Tensor) -> Any:
        """What a Session takes: the array, or a handle of what it has read."""
        if tensor.shape is None:
            return self._feed_array(tensor)
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
