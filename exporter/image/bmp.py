"""Decodes BMP files (Microsoft's "Bitmap Storage"; BITMAPCOREHEADER is that of OS/2).

TensorFlow's decoder shows palette indices as gray levels, reads compressed data and other byte orders as plain pixels,
does not know OS/2's header, and rejects files with bytes after the pixels, such as a colour profile.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read_integers, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Integer, Offset, Pixels, Size

_INFO, _OS2_INFO_BYTES, _MIN_INFO_BYTES = 14, 12, 40
_COLOURS = 256
_MAX_OFFSET = 2**31 - 1


class _Header(NamedTuple):
    """The fields of a header, int64 []."""

    is_of_os2: Flag
    is_top_down: Flag  # whether the first row is stored first
    height: Integer
    width: Integer
    bits: Integer
    start: Integer  # where the pixels begin
    info_bytes: Integer  # size of the header without the first 14 bytes
    compression: Integer  # of a header that is not of OS/2


def _read(data: ImageBytes) -> _Header:
    words = tf.unstack(tf.cast(read_integers(data, 0, 17, tf.uint16, little_endian=True), tf.int64))

    def long(offset: int) -> Integer:
        return words[offset // 2] + 2**16 * words[offset // 2 + 1]

    info_bytes = long(_INFO)
    is_of_os2 = tf.equal(info_bytes, _OS2_INFO_BYTES)
    sizes = tf.where(is_of_os2, [words[10], words[9], words[12]], [long(22), long(18), words[14]])
    height, width, bits = tf.unstack(sizes)
    is_top_down = height >= 2**31  # then the field is a negative number
    height = tf.where(is_top_down, 2**32 - height, height)
    return _Header(is_of_os2, is_top_down, height, width, bits, long(10), info_bytes, long(30))


def read_size(data: ImageBytes) -> Size:
    """Read height and width."""
    header = _read(data)
    return header.height, header.width


def decode(data: ImageBytes) -> Pixels:
    """Decode a file of 8 bits per pixel, with a palette, or of 24 or 32; the operation fails for any other."""
    header = _read(data)
    height, width, bits = header.height, header.width, header.bits
    is_usual = (
        tf.reduce_any(tf.equal(bits, [8, 24, 32]))
        & (header.is_of_os2 | _is_uncompressed(data, header))
        & (header.start >= _INFO + header.info_bytes)
    )
    with tf.control_dependencies([tf.debugging.Assert(is_usual, ["unsupported BMP variant"])]):
        row_bytes = (width * bits + 31) // 32 * 4
    stored = substring(data, _offset(header.start), _offset(row_bytes * height))
    rows = tf.reshape(tf.io.decode_raw(stored, tf.uint8), [height, row_bytes])
    pixels = tf.reshape(rows[:, : width * bits // 8], [height, width, bits // 8])
    coloured = tf.cond(
        tf.equal(bits, 8),
        lambda: tf.gather(_palette(data, header), tf.cast(pixels[..., 0], tf.int32)),
        lambda: tf.reverse(pixels[..., :3], [-1]),
    )
    return tf.cond(header.is_top_down, lambda: coloured, lambda: tf.reverse(coloured, [0]))


def _is_uncompressed(data: ImageBytes, header: _Header) -> Flag:
    """Return whether pixels are stored as they are: blue, green, red and perhaps a byte that is not used."""
    has_usual_masks = tf.equal(substring(data, 54, 12), b"\0\0\xff\0\0\xff\0\0\xff\0\0\0")
    has_masks = tf.equal(header.compression, 3) & tf.equal(header.bits, 32) & has_usual_masks
    return (tf.equal(header.compression, 0) | has_masks) & (header.info_bytes >= _MIN_INFO_BYTES)


def _palette(data: ImageBytes, header: _Header) -> Pixels:
    """Return the colours between the header and the pixels, and black for others: uint8 [256, 3]."""
    start, entry_bytes = _offset(_INFO + header.info_bytes), tf.where(header.is_of_os2, 3, 4)
    size = tf.minimum(_offset(header.start) - start, _COLOURS * entry_bytes)
    entries = tf.io.decode_raw(substring(data, start, size // entry_bytes * entry_bytes), tf.uint8)
    colours = tf.reverse(tf.reshape(entries, [-1, entry_bytes])[:, :3], [-1])
    return tf.pad(colours, [[0, _COLOURS - tf.shape(colours)[0]], [0, 0]])


def _offset(value: Integer) -> Offset:
    return tf.cast(tf.minimum(value, _MAX_OFFSET), tf.int32)
