"""The chunks of a PNG or RIFF file: a name, a length and contents each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import number, text

# Files have a handful before the picture's own; a walk must end soon.
_MAX_CHUNKS = 1024


def find_in_png(data: Any, wanted: tuple[bytes, ...], *, last: bytes) -> Any:
    """Where the contents of the first chunk of each `wanted` name begin: scalar int32 each, 0 for none before `last`.

    A chunk is a length, a name, contents and a checksum (PNG third edition, section 5.3).
    """
    return _find(
        data,
        8,
        wanted,
        last=last,
        read=lambda at: (text(data, at + 4, 4), number(data, at, 4)),
        onward=lambda size: 12 + size,
    )


def find_in_riff(data: Any, wanted: tuple[bytes, ...]) -> Any:
    """The same in all of a RIFF file, where a chunk is a name, a length and contents, filled up to an even length."""
    return _find(
        data,
        12,
        wanted,
        last=b"",
        read=lambda at: (text(data, at, 4), number(data, at + 4, 4, little=True)),
        onward=lambda size: 8 + size + size % 2,
    )


def _find(
    data: Any,
    start: int,
    wanted: tuple[bytes, ...],
    *,
    last: bytes,
    read: Callable[[Any], tuple[Any, Any]],
    onward: Callable[[Any], Any],
) -> Any:
    length = tf.strings.length(data)

    def more(at: Any, is_last: Any, _found: Any) -> Any:
        return (at < length) & ~is_last

    def step(at: Any, _is_last: Any, found: Any) -> tuple[Any, Any, Any]:
        name, claimed = read(at)
        # Not beyond the end, because what comes after the sum must still be an int32.
        size = tf.cast(tf.minimum(claimed, tf.cast(length - at, tf.int64)), tf.int32)
        is_first = tf.equal(name, tf.constant(wanted)) & tf.equal(found, 0)
        return at + onward(size), tf.equal(name, last), tf.where(is_first, at + 8, found)

    state = (tf.constant(start), tf.constant(False), tf.zeros([len(wanted)], tf.int32))
    _, _, found = tf.while_loop(more, step, state, maximum_iterations=_MAX_CHUNKS)
    return tf.unstack(found)
