"""Orientation in EXIF data, and what it means for rows and columns."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import number, read, text

PREFIX = b"Exif\0\0"
# TIFF 6.0, section 8: Orientation, a SHORT; some writers use a LONG.
_ORIENTATION_TAG, _SHORT, _LONG = 0x0112, 3, 4
_MAX_TAGS = 512


def read_orientation(data: Any, at: Any) -> Any:
    """Orientation in the EXIF block that begins at `at` of scalar string `data`: scalar int32, 1..8.

    It is 1 where `at` is 0 and where nothing usable stands there. The block is a TIFF header, with or without `PREFIX`
    before it.
    """
    prefixed = tf.equal(text(data, at, len(PREFIX)), PREFIX)
    start = at + tf.where(prefixed, len(PREFIX), 0)
    return tf.cond(at > 0, lambda: _read_tiff(data, start), lambda: tf.constant(1))


def _read_tiff(data: Any, tiff: Any) -> Any:
    order = text(data, tiff, 2)
    little = tf.equal(order, b"II")
    offset = tf.where(little, number(data, tiff + 4, 4, little=True), number(data, tiff + 4, 4))
    directory = tiff + tf.cast(tf.minimum(offset, tf.cast(tf.strings.length(data), tf.int64)), tf.int32)
    # The number of tags, then of each in 16-bit words: tag, type, count (two), value (two).
    words = tf.where(
        little, *(read(data, directory, 1 + 6 * _MAX_TAGS, tf.uint16, little=end) for end in (True, False))
    )
    tag, kind, _, _, first, second = tf.unstack(tf.reshape(words[1:], [_MAX_TAGS, 6]), axis=1)
    low, high = tf.where(little, first, second), tf.where(little, second, first)
    is_short = tf.equal(kind, _SHORT)
    value = tf.where(is_short, first, low)
    is_ours = tf.equal(tag, _ORIENTATION_TAG) & (is_short | (tf.equal(kind, _LONG) & tf.equal(high, 0)))
    found = is_ours & (value >= 1) & (value <= 8) & (tf.range(_MAX_TAGS) < words[0])
    usable = tf.reduce_any(found) & (little | tf.equal(order, b"MM"))
    return tf.where(usable, tf.gather(value, tf.argmax(tf.cast(found, tf.int8))), 1)
