"""A TensorFlow Session without what `Session.run` adds, by TensorFlow's private Python API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.framework import op_def_registry

IN_CALLERS_THREAD = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
"""Options of a run that does not wait for the session's threads, which may be busy for minutes with runs that are to
end. They are shared: change only a copy."""


class DirectSession:
    """A TensorFlow Session that can run without `Session.run`.

    `Session.run` rejects shapes that the real server accepts, and takes longer than a small model.
    """

    def __init__(self, graph: tf.Graph, config: Any) -> None:
        self.session = tf.compat.v1.Session(graph=graph, config=config)

    @staticmethod
    def handle(tensor: Any) -> Any:
        """Return the handle of a tensor, by which `run` feeds or fetches it."""
        return tensor._as_tf_output()

    def extend(self) -> None:
        """Make operations that were added to the graph available to `run`; `Session.run` does this by itself."""
        self.session._extend_graph()

    def run(
        self, feeds: Mapping[Any, np.ndarray], fetches: Sequence[Any], options: Any = None, metadata: Any = None
    ) -> list[Any]:
        """Run the graph once, with arrays and fetches by handle; raises tf.errors.OpError if that fails.

        `metadata`, a RunMetadata, is filled if the RunOptions ask for a trace.
        """
        buffer = None if options is None else pywrap_tf_session.TF_NewBufferFromString(options.SerializeToString())
        filled = None if metadata is None else pywrap_tf_session.TF_NewBuffer()
        try:
            outputs: list[Any] = self.session._call_tf_sessionrun(buffer, feeds, fetches, [], filled)
            if filled is not None:
                metadata.ParseFromString(pywrap_tf_session.TF_GetBuffer(filled))
            return outputs
        finally:
            for made in (buffer, filled):
                if made is not None:
                    pywrap_tf_session.TF_DeleteBuffer(made)

    def make_callable(self, feeds: Sequence[str], fetches: Sequence[str]) -> Callable[..., list[Any]]:
        """Return a function from the arrays of `feeds` to those of `fetches`, for a small graph.

        It runs in its caller's thread, in two thirds of the time of `run`, and raises what that raises.
        """
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, run_options=IN_CALLERS_THREAD)
        made: Callable[..., list[Any]] = self.session._make_callable_from_options(options)
        return made

    def close(self) -> None:
        """Close the session; no run may be active."""
        self.session.close()


def has_state(operation: str) -> bool:
    """Return whether operations of this type may have a state, as those of unknown types may."""
    definition = op_def_registry.get(operation)
    return definition is None or definition.is_stateful
