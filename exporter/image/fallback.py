"""Runs operations that may fail without failing the whole run."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import Tensor


def with_fallback(function: Callable[[Tensor], Tensor], argument: Tensor, *, fallback: Tensor) -> Tensor:
    """Return `function(argument)`, or `fallback`, of the same dtype and rank, if an operation in it fails.

    A failing operation ends a whole run, but inside a dataset only its element. Keep `function` small: each time the
    dataset is created, TensorFlow visits every operation in it and in the functions it calls.
    """
    result = tf.data.Dataset.from_tensors(argument).map(function).ignore_errors()
    return result.concatenate(tf.data.Dataset.from_tensors(fallback)).take(1).get_single_element()
