"""Numbers and texts at places in a file, which is a scalar string; nothing here fails, whatever the place."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def read(data: Any, at: Any, count: int, dtype: tf.DType = tf.uint8, *, little: bool = False) -> Any:
    """The `count` numbers of `dtype` that stand `at` … in scalar string `data`, zeros beyond its end: int32 [count]."""
    size = count * dtype.size
    values = tf.io.decode_raw(text(data, at, size), dtype, little_endian=little, fixed_length=size)
    values.set_shape([count])
    return tf.cast(values, tf.int32)


def text(data: Any, at: Any, count: Any) -> Any:
    """The same as a scalar string, shorter beyond the end."""
    return tf.strings.substr(data, tf.clip_by_value(at, 0, tf.strings.length(data)), count)


def number(data: Any, at: Any, count: int, *, little: bool = False) -> Any:
    """The unsigned number in bytes `at` … of scalar string `data`, the last or (`little`) the first the lowest.

    Args:
        data: the file.
        at: scalar int32.
        count: of bytes, 1 to 7; those beyond the end are zeros.
        little: which end is the lower.

    Returns:
        scalar int64.
    """
    eight = tf.io.decode_raw(text(data, at, 8), tf.int64, little_endian=little, fixed_length=8)
    eight.set_shape([1])
    low = (
        tf.squeeze(eight)
        if little
        else tf.bitwise.right_shift(tf.squeeze(eight), tf.constant(64 - 8 * count, tf.int64))
    )
    return tf.bitwise.bitwise_and(low, tf.constant(256**count - 1, tf.int64))
