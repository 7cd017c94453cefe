"""Finds the chunks of PNG and RIFF files. A chunk has a name, a length and contents."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read_unsigned, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Integer, Integers, Offset, Text

# Files have a handful of chunks before the image data. The limit bounds the time a hostile file can take.
_MAX_CHUNKS = 1024


def find_png_chunks(data: ImageBytes, names: tuple[bytes, ...], *, stop_at: bytes) -> list[Offset]:
    """Find the contents of the first chunk of each name that precedes the chunk `stop_at`.

    A PNG chunk is a length, a name, contents and a checksum (PNG third edition, section 5.3).
    """
    return _find_chunks(
        data,
        8,
        names,
        stop_at=stop_at,
        read_chunk=lambda offset: (substring(data, offset + 4, 4), read_unsigned(data, offset, 4)),
        chunk_size=lambda length: 12 + length,
    )


def find_riff_chunks(data: ImageBytes, names: tuple[bytes, ...]) -> list[Offset]:
    """Find the contents of the first chunk of each name in a RIFF file.

    A RIFF chunk is a name, a length and contents, padded to an even length.
    """
    return _find_chunks(
        data,
        12,
        names,
        stop_at=b"",
        read_chunk=lambda offset: (substring(data, offset, 4), read_unsigned(data, offset + 4, 4, little_endian=True)),
        chunk_size=lambda length: 8 + length + length % 2,
    )


def _find_chunks(
    data: ImageBytes,
    start: int,
    names: tuple[bytes, ...],
    *,
    stop_at: bytes,
    read_chunk: Callable[[Offset], tuple[Text, Integer]],
    chunk_size: Callable[[Integer], Integer],
) -> list[Offset]:
    file_size = tf.strings.length(data)

    def has_more(offset: Offset, is_last: Flag, _contents: Integers) -> Flag:
        return (offset < file_size) & ~is_last

    def read_next(offset: Offset, _is_last: Flag, contents: Integers) -> tuple[Offset, Flag, Integers]:
        name, claimed_length = read_chunk(offset)
        # At most to the end of the file, so that the next offset fits into int32.
        length = tf.cast(tf.minimum(claimed_length, tf.cast(file_size - offset, tf.int64)), tf.int32)
        is_first = tf.equal(name, tf.constant(names)) & tf.equal(contents, 0)
        return offset + chunk_size(length), tf.equal(name, stop_at), tf.where(is_first, offset + 8, contents)

    state = (tf.constant(start), tf.constant(False), tf.zeros([len(names)], tf.int32))
    _, _, contents = tf.while_loop(has_more, read_next, state, maximum_iterations=_MAX_CHUNKS)
    offsets: list[Offset] = tf.unstack(contents)
    return offsets
