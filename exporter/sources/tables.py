"""Finds the lookup tables of a model, which a SavedModel of it must own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def find_tables(model: Any) -> tuple[Any, ...]:
    """Return the lookup tables, and other resources but variables, of a Keras model, a tf.Module or a SavedModel."""
    import tensorflow as tf

    found: dict[int, Any] = {}
    visited = set[int]()
    pending = [model]
    while pending:
        each = pending.pop()
        if id(each) in visited:
            continue
        visited.add(id(each))
        if isinstance(each, tf.saved_model.experimental.TrackableResource):
            found[id(each)] = each
        elif isinstance(each, Mapping):
            pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each
        elif isinstance(each, tf.__internal__.tracking.AutoTrackable):
            pending += vars(each).values()
    return tuple(found.values())
