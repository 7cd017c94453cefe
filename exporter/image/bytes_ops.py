"""Reads integers and substrings from the bytes of a file. Offsets outside the file are allowed; nothing here fails."""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import ImageBytes, Integer, Integers, Offset, Text


def read_integers(
    data: ImageBytes, offset: Offset, count: int, dtype: tf.DType = tf.uint8, *, little_endian: bool = False
) -> Integers:
    """Read `count` integers of `dtype`, the first at `offset`; bytes beyond the end of the file are 0."""
    size = count * dtype.size
    values = tf.io.decode_raw(substring(data, offset, size), dtype, little_endian=little_endian, fixed_length=size)
    values.set_shape([count])
    return tf.cast(values, tf.int32)


def substring(data: ImageBytes, offset: Offset, length: Integer) -> Text:
    """Return `length` bytes from `offset`, fewer at the end of the file."""
    return tf.strings.substr(data, tf.clip_by_value(offset, 0, tf.strings.length(data)), length)


def read_unsigned(data: ImageBytes, offset: Offset, size: int, *, little_endian: bool = False) -> Integer:
    """Read the unsigned integer of `size` bytes, 1 to 7, at `offset`: int64 [].

    Bytes beyond the end of the file are 0.
    """
    padded = tf.io.decode_raw(substring(data, offset, 8), tf.int64, little_endian=little_endian, fixed_length=8)
    padded.set_shape([1])
    low = (
        tf.squeeze(padded)
        if little_endian
        else tf.bitwise.right_shift(tf.squeeze(padded), tf.constant(64 - 8 * size, tf.int64))
    )
    return tf.bitwise.bitwise_and(low, tf.constant(256**size - 1, tf.int64))


def split(text: Text, separator: bytes, maximum: int) -> Text:
    """Return the parts between separators, at least one; the last has the separators after the first `maximum`.

    Without the ragged tensors of tf.strings.split, which are fifty operations.
    """
    return tf.raw_ops.StringSplitV2(input=[text], sep=separator, maxsplit=maximum).values
