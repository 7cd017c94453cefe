"""Decodes BMP files (Microsoft's "Bitmap Storage"; BITMAPCOREHEADER is that of OS/2).

TensorFlow's decoder shows palette indices as gray levels, reads compressed data and other byte orders as plain pixels,
does not know OS/2's header, and rejects files with bytes after the pixels, such as a colour profile.
"""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read_unsigned, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Integer, Offset, Pixels, Size

_INFO, _OS2_INFO_BYTES, _MIN_INFO_BYTES = 14, 12, 40
_COLOURS = 256
_MAX_OFFSET = 2**31 - 1


def read_size(data: ImageBytes) -> Size:
    """Read height and width."""
    sizes = [[_field(data, 22, 4), _field(data, 18, 4)], [_field(data, 20, 2), _field(data, 18, 2)]]
    height, width = tf.unstack(tf.where(_is_of_os2(data), sizes[1], sizes[0]))
    # A signed 32-bit integer, negative if rows are stored from top to bottom.
    return tf.where(height >= 2**31, 2**32 - height, height), width


def decode(data: ImageBytes) -> Pixels:
    """Decode a file of 8 bits per pixel, with a palette, or of 24 or 32; the operation fails for any other."""
    is_of_os2 = _is_of_os2(data)
    height, width = read_size(data)
    bits = tf.where(is_of_os2, _field(data, 24, 2), _field(data, 28, 2))
    is_usual = tf.reduce_any(tf.equal(bits, [8, 24, 32])) & (is_of_os2 | _is_uncompressed(data, bits))
    with tf.control_dependencies([tf.debugging.Assert(is_usual, ["unsupported BMP variant"])]):
        row_bytes = (width * bits + 31) // 32 * 4
    start = _field(data, 10, 4)
    after_header = tf.debugging.Assert(start >= _INFO + _field(data, _INFO, 4), ["pixels in the header"])
    with tf.control_dependencies([after_header]):
        stored = substring(data, _offset(start), _offset(row_bytes * height))
    rows = tf.reshape(tf.io.decode_raw(stored, tf.uint8), [height, row_bytes])
    pixels = tf.reshape(rows[:, : width * bits // 8], [height, width, bits // 8])
    coloured = tf.cond(
        tf.equal(bits, 8),
        lambda: tf.gather(_palette(data, tf.where(is_of_os2, 3, 4)), tf.cast(pixels[..., 0], tf.int32)),
        lambda: tf.reverse(pixels[..., :3], [-1]),
    )
    is_top_down = ~is_of_os2 & (_field(data, 22, 4) >= 2**31)
    return tf.cond(is_top_down, lambda: coloured, lambda: tf.reverse(coloured, [0]))


def _is_of_os2(data: ImageBytes) -> Flag:
    return tf.equal(_field(data, _INFO, 4), _OS2_INFO_BYTES)


def _is_uncompressed(data: ImageBytes, bits: Integer) -> Flag:
    """Return whether pixels are stored as they are: blue, green, red and perhaps a byte that is not used."""
    compression = _field(data, 30, 4)
    has_usual_masks = tf.equal(substring(data, 54, 12), b"\0\0\xff\0\0\xff\0\0\xff\0\0\0")
    is_plain = tf.equal(compression, 0) | (tf.equal(compression, 3) & tf.equal(bits, 32) & has_usual_masks)
    return is_plain & (_field(data, _INFO, 4) >= _MIN_INFO_BYTES)


def _palette(data: ImageBytes, entry_bytes: Integer) -> Pixels:
    """Return the colours between the header and the pixels, and black for others: uint8 [256, 3]."""
    start = _offset(_INFO + _field(data, _INFO, 4))
    size = tf.clip_by_value(_offset(_field(data, 10, 4)) - start, 0, _COLOURS * entry_bytes)
    entries = tf.io.decode_raw(substring(data, start, size // entry_bytes * entry_bytes), tf.uint8)
    colours = tf.reverse(tf.reshape(entries, [-1, entry_bytes])[:, :3], [-1])
    return tf.pad(colours, [[0, _COLOURS - tf.shape(colours)[0]], [0, 0]])


def _field(data: ImageBytes, offset: int, size: int) -> Integer:
    return read_unsigned(data, offset, size, little_endian=True)


def _offset(value: Integer) -> Offset:
    return tf.cast(tf.minimum(value, _MAX_OFFSET), tf.int32)
