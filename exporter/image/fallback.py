"""Attempts: operations that may fail without ending the run they are part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def attempt(make: Callable[[Any], Any], given: Any, *, otherwise: Any) -> Any:
    """What `make` makes of the tensor `given`, or `otherwise`, of the same type and rank, where it fails.

    A failing operation ends a whole run; inside a dataset it only ends its element. `make` should hold little: each
    time a dataset is made, TensorFlow looks at every operation in its function and in those that this one calls.
    """
    made = tf.data.Dataset.from_tensors(given).map(make).ignore_errors()
    return made.concatenate(tf.data.Dataset.from_tensors(otherwise)).take(1).get_single_element()
