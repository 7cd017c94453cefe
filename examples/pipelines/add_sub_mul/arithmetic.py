"""Functions on two vectors of four numbers: the steps of the pipeline in add_sub_mul.toml."""

from __future__ import annotations

import tensorflow as tf


def add_sub(a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the sum and the difference, float32 [4]."""
    return {"sum": a + b, "difference": a - b}


def mul(x: tf.Tensor, y: tf.Tensor) -> dict[str, tf.Tensor]:
    """Return the product, float32 [4]."""
    return {"product": x * y}
