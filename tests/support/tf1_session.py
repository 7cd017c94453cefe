"""Runs a SavedModel in a TensorFlow 1 Session, as tensorflow_model_server does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf


class Loaded:
    """A loaded SavedModel; call it with the name of a signature and the value of its only input, or all by alias."""

    def __init__(self, session: Any, signatures: Any) -> None:
        self._session = session
        self._signatures = signatures

    def __call__(self, name: str, value: Any = None, **inputs: Any) -> dict[str, Any]:
        signature = self._signatures[name]
        if not inputs:
            (alias,) = signature.inputs
            inputs = {alias: value}
        fetches = {alias: info.name for alias, info in signature.outputs.items()}
        feeds = {signature.inputs[alias].name: each for alias, each in inputs.items()}
        outputs: dict[str, Any] = self._session.run(fetches, feeds)
        return outputs


def build_functions_faster(config: Any) -> None:
    """Leave out the optimisers that take most of the first run of a function, as the server does (tf_session.py)."""
    rewrites = config.graph_options.rewrite_options
    rewrites.disable_tfg_optimizer = True
    rewrites.meta_optimizer_iterations = rewrites.ONE


@contextlib.contextmanager
def loaded(path: Path) -> Iterator[Loaded]:
    """Load the SavedModel in `path` until the end of the with statement."""
    config = tf.compat.v1.ConfigProto()
    build_functions_faster(config)
    with contextlib.closing(
        tf.compat.v1.Session(graph=tf.Graph(), config=config)
    ) as session:  # must not be the default graph of other tests
        with session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(path))
        yield Loaded(session, meta_graph.signature_def)
