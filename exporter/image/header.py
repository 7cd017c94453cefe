"""Reads size, orientation and alpha from the header of an image file, before anything is decoded.

Never fails: what can't be found is 0, or 1 for an orientation. If a decoder might find another size than this module,
the size is 0; so a size other than 0 is the one the decoder will use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image import bmp, chunks, encodings, gif
from savedmodel_bakery.exporter.image.bytes_ops import read_integers, read_unsigned, split, substring
from savedmodel_bakery.exporter.tensor_types import (
    FileFormat,
    Flag,
    ImageBytes,
    Integer,
    Offset,
    Orientation,
    Side,
    Tensor,
)

# JPEG, ITU-T T.81, table B.1: frame markers hold the size, the scan marker ends the headers, some have no contents.
# ff before ff or 00 is no marker.
_OTHER, _FRAME, _END, _APP1, _NO_CONTENTS, _NO_MARKER = range(6)
_ROLES = np.full(256, _OTHER, np.int32)
_ROLES[0xC0:0xD0], _ROLES[[0xC4, 0xC8, 0xCC]] = _FRAME, _OTHER
_ROLES[0x01], _ROLES[0xD0:0xD8] = _NO_CONTENTS, _NO_CONTENTS
_ROLES[0xDA], _ROLES[0xE1], _ROLES[[0x00, 0xFF]] = _END, _APP1, _NO_MARKER
_SEARCHED_BYTES = 2**16
# Photos have about ten segments, or a few hundred if a large profile is split into segments of 64 kB. The limit bounds
# the time a hostile file can take.
_MAX_SEGMENTS = 1024
# A photo has up to about 20 scans. Each takes a decoder as much time as all pixels, whatever its size is.
_SCAN, _END_OF_IMAGE, _MAX_SCANS = b"\xff\xda", b"\xff\xd9", 64

_EXIF_PREFIX = b"Exif\0\0"
# TIFF 6.0, section 8: Orientation is a SHORT; some programs write a LONG.
_ORIENTATION_TAG, _SHORT, _LONG = 0x0112, 3, 4
_MAX_TAGS = 512


class Header(NamedTuple):
    """What the header of a file states."""

    height: Side  # in pixels, before turning upright; 0 if unknown
    width: Side
    orientation: Orientation  # of a JPEG, PNG or WebP file; 1 if it states none
    has_alpha: Flag  # whether a PNG or WebP file has, or may have, transparent pixels
    file_format: FileFormat


# What the reader of a format returns: height, width, offset of the EXIF block, alpha.
_Fields = tuple[Side, Side, Offset, Flag]


def read_header(data: ImageBytes) -> Header:
    """Read the header of a file of any known format. Source for JPEG: ITU-T T.81, B.2.2."""
    file_format = encodings.detect_format(data)
    readers = {
        encodings.JPEG: _read_jpeg,
        encodings.PNG: chunks.read_png_header,
        encodings.GIF: lambda data: _size_only(*gif.read_size(data)),
        encodings.BMP: lambda data: _size_only(*bmp.read_size(data)),
        encodings.WEBP: chunks.read_webp_header,
        encodings.UNKNOWN: lambda _: _size_only(tf.constant(0, tf.int64), tf.constant(0, tf.int64)),
    }
    height, width, exif_offset, has_alpha = tf.switch_case(
        file_format, {number: lambda reader=reader: reader(data) for number, reader in readers.items()}
    )
    return Header(height, width, read_orientation(data, exif_offset), has_alpha, file_format)


def _size_only(height: Side, width: Side) -> _Fields:
    return height, width, tf.constant(0), tf.constant(False)


def _read_jpeg(data: ImageBytes) -> _Fields:
    exif_offset, frame = _walk_jpeg_segments(data)
    image = split(substring(data, frame, tf.strings.length(data)), _END_OF_IMAGE, 1)[0]
    is_usual = (frame > 0) & (tf.size(split(image, _SCAN, _MAX_SCANS + 1)) <= 1 + _MAX_SCANS)
    sides = tf.where(is_usual, read_integers(data, frame + 1, 2, tf.uint16), 0)
    height, width = tf.unstack(tf.cast(sides, tf.int64))
    return height, width, exif_offset, tf.constant(False)


def _walk_jpeg_segments(data: ImageBytes) -> tuple[Offset, Offset]:
    """Find the EXIF block and the contents of the frame header."""
    file_size = tf.strings.length(data)

    def has_more(offset: Offset, in_headers: Flag, _exif: Offset, _frame: Offset) -> Flag:
        return in_headers & (offset < file_size)

    def read_next(offset: Offset, _in_headers: Flag, exif_offset: Offset, frame: Offset) -> tuple[Tensor, ...]:
        segment = read_integers(data, offset, 4 + len(_EXIF_PREFIX))
        role = tf.where(tf.equal(segment[0], 0xFF), tf.gather(_ROLES, segment[1]), _NO_MARKER)
        contents = offset + 4
        is_exif = tf.equal(role, _APP1) & tf.reduce_all(tf.equal(segment[4:], list(_EXIF_PREFIX)))
        size = 2 + tf.maximum(256 * segment[2] + segment[3], 2)
        is_marker = tf.not_equal(role, _NO_MARKER)
        step = tf.where(tf.equal(role, _NO_CONTENTS), 2, size)
        return (
            offset + tf.cond(is_marker, lambda: step, lambda: _bytes_before_marker(data, offset)),
            tf.not_equal(role, _END) & tf.not_equal(role, _FRAME),
            tf.where(is_exif & tf.equal(exif_offset, 0), contents, exif_offset),
            tf.where(tf.equal(role, _FRAME), contents, frame),
        )

    zero = tf.constant(0)
    state = (tf.constant(2), tf.constant(True), zero, zero)
    _, _, exif_offset, frame = tf.while_loop(has_more, read_next, state, maximum_iterations=_MAX_SEGMENTS)
    return exif_offset, frame


def _bytes_before_marker(data: ImageBytes, offset: Offset) -> Integer:
    """Return how many bytes libjpeg skips to find the next marker, at most `_SEARCHED_BYTES`."""
    searched = tf.io.decode_raw(substring(data, offset, _SEARCHED_BYTES + 1), tf.uint8)
    is_marker = tf.equal(searched[:-1], 0xFF) & tf.not_equal(searched[1:], 0x00) & tf.not_equal(searched[1:], 0xFF)
    found = tf.concat([is_marker, [True]], axis=0)
    return tf.argmax(found, output_type=tf.int32)


def read_orientation(data: ImageBytes, offset: Offset) -> Orientation:
    """Read the orientation from the EXIF block at `offset`: a TIFF header, with or without `Exif` before it.

    It is 1 if `offset` is 0 or if the block has no valid orientation.
    """
    has_prefix = tf.equal(substring(data, offset, len(_EXIF_PREFIX)), _EXIF_PREFIX)
    tiff = offset + tf.where(has_prefix, len(_EXIF_PREFIX), 0)
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
