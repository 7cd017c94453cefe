"""What a file's header tells before anything is decoded: how large the picture is, which way up, with alpha or without.

Nothing here fails, whatever the bytes: what can't be found is 0, or 1 for an orientation. Where a decoder might find
another size than is read here, none is found; so a size that was found can be relied on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image import chunks, exif, gif, webp
from savedmodel_bakery.exporter.image import encodings as spelling
from savedmodel_bakery.exporter.image.bytes_ops import number, read, text

# JPEG, ITU-T T.81, table B.1: markers of frames hold the size; the scan's ends the headers; some have no contents.
# libjpeg skips what is no marker (00) and goes on; a file like that is left, as it might hold another frame there.
_OTHER, _FRAME, _END, _APP1, _FILL, _ALONE = range(6)
_ROLES = np.full(256, _OTHER, np.int32)
_ROLES[0xC0:0xD0], _ROLES[[0xC4, 0xC8, 0xCC]] = _FRAME, _OTHER
_ROLES[0x01], _ROLES[0xD0:0xD8] = _ALONE, _ALONE
_ROLES[0x00], _ROLES[0xDA], _ROLES[0xE1], _ROLES[0xFF] = _END, _END, _APP1, _FILL
# Photos have about ten segments, a few hundred where 64 kB each hold a large profile; a walk must end soon.
_MAX_SEGMENTS = 1024


class Header(NamedTuple):
    """What the header of a file claims.

    Attributes:
        height: pixels, scalar int64, before turning; 0 where it can't be found.
        width: likewise.
        orientation: EXIF orientation of a JPEG, PNG or WebP file, scalar int32, 1..8; 1 where there is none.
        alpha: scalar bool, whether a PNG or WebP file has transparent pixels, or might.
        kind: of the file, as in spelling.kind_of.
    """

    height: Any
    width: Any
    orientation: Any
    alpha: Any
    kind: Any


# What is read of each format: height and width, int64; where the EXIF block begins, int32, 0 for none; alpha.
_Found = tuple[Any, Any, Any, Any]


def read_header(data: Any) -> Header:
    """Read the header of the file in scalar string `data`.

    Sources: ITU-T T.81 B.2.2 (JPEG), PNG third edition 5.3 and 11, GIF89a, BITMAPINFOHEADER, RFC 9649 section 2 (WebP).
    """
    kind = spelling.kind_of(data)
    readers = {
        spelling.JPEG: _read_jpeg,
        spelling.PNG: _read_png,
        spelling.GIF: lambda data: _of_size(*gif.read_size(data)),
        spelling.BMP: _read_bmp,
        spelling.WEBP: webp.read_header,
        spelling.NO_IMAGE: lambda _: _of_size(tf.constant(0, tf.int64), tf.constant(0, tf.int64)),
    }
    height, width, exif_at, alpha = tf.switch_case(
        kind, {number: lambda reader=reader: reader(data) for number, reader in readers.items()}
    )
    return Header(height, width, exif.read_orientation(data, exif_at), alpha, kind)


def _of_size(height: Any, width: Any) -> _Found:
    return height, width, tf.constant(0), tf.constant(False)


def _read_jpeg(data: Any) -> _Found:
    exif_at, frame = _walk_jpeg(data)
    sides = tf.where(frame > 0, read(data, frame + 1, 2, tf.uint16), 0)
    height, width = tf.unstack(tf.cast(sides, tf.int64))
    return height, width, exif_at, tf.constant(False)


def _walk_jpeg(data: Any) -> tuple[Any, Any]:
    """Where the EXIF block and the frame's contents begin: scalar int32, 0 for none."""
    length = tf.strings.length(data)

    def more(at: Any, is_going: Any, _exif: Any, _frame: Any) -> Any:
        return is_going & (at < length)

    def step(at: Any, _is_going: Any, exif_at: Any, frame: Any) -> tuple[Any, ...]:
        segment = read(data, at, 4 + len(exif.PREFIX))
        role = tf.gather(_ROLES, segment[1])
        role = tf.where(tf.equal(segment[0], 0xFF), role, _END)
        contents = at + 4
        is_exif = tf.equal(role, _APP1) & tf.reduce_all(tf.equal(segment[4:], list(exif.PREFIX)))
        size = 2 + tf.maximum(256 * segment[2] + segment[3], 2)
        # Any number of bytes ff may stand before a marker.
        onward = tf.where(tf.equal(role, _FILL), 1, tf.where(tf.equal(role, _ALONE), 2, size))
        return (
            at + onward,
            tf.not_equal(role, _END) & tf.not_equal(role, _FRAME),
            tf.where(is_exif & tf.equal(exif_at, 0), contents, exif_at),
            tf.where(tf.equal(role, _FRAME), contents, frame),
        )

    zero = tf.constant(0)
    state = (tf.constant(2), tf.constant(True), zero, zero)
    _, _, exif_at, frame = tf.while_loop(more, step, state, maximum_iterations=_MAX_SEGMENTS)
    return exif_at, frame


def _read_png(data: Any) -> _Found:
    exif_at, transparency = chunks.find_in_png(data, (b"eXIf", b"tRNS"), last=b"IDAT")
    # It must come first (PNG, section 5.6), but libpng reads over others; then the size is not to be found here.
    is_header = tf.cast(tf.equal(text(data, 12, 4), b"IHDR"), tf.int64)
    # Bit 2 of the colour type: with an alpha channel; a palette, or one colour, is made transparent by tRNS.
    alpha = tf.equal(number(data, 25, 1) & 4, 4) | (transparency > 0)
    return number(data, 20, 4) * is_header, number(data, 16, 4) * is_header, exif_at, alpha


def _read_bmp(data: Any) -> _Found:
    height = number(data, 22, 4, little=True)
    # A 32-bit number; it is negative where rows go from top to bottom.
    height = tf.where(height >= 2**31, 2**32 - height, height)
    return _of_size(height, number(data, 18, 4, little=True))
