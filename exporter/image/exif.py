"""Reads the orientation from EXIF data."""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read_integers, read_unsigned, substring
from savedmodel_bakery.exporter.tensor_types import ImageBytes, Offset, Orientation

PREFIX = b"Exif\0\0"
# TIFF 6.0, section 8: Orientation is a SHORT; some programs write a LONG.
_ORIENTATION_TAG, _SHORT, _LONG = 0x0112, 3, 4
_MAX_TAGS = 512


def read_orientation(data: ImageBytes, offset: Offset) -> Orientation:
    """Read the orientation from the EXIF block at `offset`: a TIFF header, with or without `PREFIX` before it.

    It is 1 if `offset` is 0 or if the block has no valid orientation.
    """
    has_prefix = tf.equal(substring(data, offset, len(PREFIX)), PREFIX)
    tiff = offset + tf.where(has_prefix, len(PREFIX), 0)
    return tf.cond(offset > 0, lambda: _read_tiff_orientation(data, tiff), lambda: tf.constant(1))


def _read_tiff_orientation(data: ImageBytes, tiff: Offset) -> Orientation:
    byte_order = substring(data, tiff, 2)
    is_little_endian = tf.equal(byte_order, b"II")
    directory_offset = tf.where(
        is_little_endian, read_unsigned(data, tiff + 4, 4, little_endian=True), read_unsigned(data, tiff + 4, 4)
    )
    directory = tiff + tf.cast(tf.minimum(directory_offset, tf.cast(tf.strings.length(data), tf.int64)), tf.int32)
    # In 16-bit words: the number of tags, then per tag its number, type, count (two words) and value (two words).
    words = tf.where(
        is_little_endian,
        *(
            read_integers(data, directory, 1 + 6 * _MAX_TAGS, tf.uint16, little_endian=little_endian)
            for little_endian in (True, False)
        ),
    )
    tag, field_type, _, _, first, second = tf.unstack(tf.reshape(words[1:], [_MAX_TAGS, 6]), axis=1)
    low, high = tf.where(is_little_endian, first, second), tf.where(is_little_endian, second, first)
    is_short = tf.equal(field_type, _SHORT)
    value = tf.where(is_short, first, low)
    is_orientation = tf.equal(tag, _ORIENTATION_TAG) & (is_short | (tf.equal(field_type, _LONG) & tf.equal(high, 0)))
    is_valid = is_orientation & (value >= 1) & (value <= 8) & (tf.range(_MAX_TAGS) < words[0])
    is_usable = tf.reduce_any(is_valid) & (is_little_endian | tf.equal(byte_order, b"MM"))
    return tf.where(is_usable, tf.gather(value, tf.argmax(tf.cast(is_valid, tf.int8))), 1)
