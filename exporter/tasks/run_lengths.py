"""Encodes masks as COCO's compressed run lengths in the graph.

Source: github.com/cocodataset/cocoapi, common/maskApi.c, rleEncode and rleToString. `answers.run_lengths` decodes them.
"""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import Side, Tensor, Text

_BITS = 5  # of a number in each character
_CHARACTERS = 7  # enough for 2**34, and a mask has fewer than 2**32 pixels
_NEGATIVE, _MORE, _FIRST_CHARACTER = 16, 32, 48


def encode_changes(changes: Tensor, pixels: Side) -> Text:
    """Return the run lengths of a mask of so many pixels, counted column by column.

    The `changes` are int64 [any number], ascending: the pixels that differ from the one before. The first one of the
    mask differs if it is set. A pixel that is named twice does not differ.
    """
    numbers, _, times = tf.unique_with_counts(changes)
    own = tf.boolean_mask(numbers, tf.equal(times % 2, 1) & (numbers < pixels))
    edges = tf.concat([[0], own, [pixels]], axis=0)
    counts = edges[1:] - edges[:-1]
    # From the fourth on, a count is stored as its difference from the one before the last.
    stored = counts - tf.concat([tf.zeros([3], tf.int64), counts[1:]], axis=0)[: tf.size(counts)]
    shifts = tf.range(0, _BITS * _CHARACTERS, _BITS, dtype=tf.int64)
    shifted = tf.bitwise.right_shift(stored[:, tf.newaxis], shifts)
    rest = tf.bitwise.right_shift(shifted, tf.constant(_BITS, tf.int64))
    is_negative = tf.not_equal(tf.bitwise.bitwise_and(shifted, tf.constant(_NEGATIVE, tf.int64)), 0)
    has_more = tf.not_equal(rest, tf.where(is_negative, tf.constant(-1, tf.int64), 0))
    digits = tf.bitwise.bitwise_and(shifted, tf.constant(2**_BITS - 1, tf.int64))
    codes = tf.cast(digits, tf.int32) + tf.where(has_more, _MORE, 0) + _FIRST_CHARACTER
    is_used = tf.pad(has_more[:, :-1], [[0, 0], [1, 0]], constant_values=True)
    return tf.strings.unicode_encode(tf.boolean_mask(codes, is_used), "UTF-8")
