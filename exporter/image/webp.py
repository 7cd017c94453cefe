"""Reads the header of WebP files and corrects one flag for TensorFlow's decoder (RFC 9649, section 2)."""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.image import chunks
from savedmodel_bakery.exporter.image.bytes_ops import read_unsigned, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Offset, Side

# Bits of the flags of a VP8X chunk; the first also of the fifth byte of a VP8L chunk.
_HAS_ALPHA, _IS_ANIMATED = 0x10, 0x02
_FLAGS_OFFSET = 20


def read_header(data: ImageBytes) -> tuple[Side, Side, Offset, Flag]:
    """Read height, width, offset of the EXIF block and alpha."""
    exif_offset, alpha_chunk, lossless = chunks.find_riff_chunks(data, (b"EXIF", b"ALPH", b"VP8L"))
    lossless_bits = read_unsigned(data, 21, 4, little_endian=True)
    # Height and width, as a lossy, a lossless and an extended file store them.
    sides = tf.stack(
        [
            [
                read_unsigned(data, 28, 2, little_endian=True) % 2**14,
                read_unsigned(data, 26, 2, little_endian=True) % 2**14,
            ],
            [lossless_bits // 2**14 % 2**14 + 1, lossless_bits % 2**14 + 1],
            [
                read_unsigned(data, 27, 3, little_endian=True) + 1,
                read_unsigned(data, 24, 3, little_endian=True) + 1,
            ],
        ]
    )
    is_variant = tf.equal(substring(data, 12, 4), (b"VP8 ", b"VP8L", b"VP8X"))
    height, width = tf.unstack(tf.reduce_sum(tf.where(is_variant[:, tf.newaxis], sides, tf.zeros_like(sides)), axis=0))
    # As WebPGetFeatures: the alpha bit of a lossless image takes precedence. Animations are always decoded with alpha.
    flags = read_unsigned(data, _FLAGS_OFFSET, 1)
    is_animated = is_variant[2] & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    announces_alpha = is_variant[2] & (tf.equal(flags & _HAS_ALPHA, _HAS_ALPHA) | (alpha_chunk > 0))
    lossless_alpha = tf.equal(read_unsigned(data, lossless + 4, 1) & _HAS_ALPHA, _HAS_ALPHA)
    has_alpha = is_animated | tf.where(lossless > 0, lossless_alpha, announces_alpha)
    return height, width, exif_offset, has_alpha


def set_alpha_flag(data: ImageBytes) -> ImageBytes:
    """Set the alpha flag of an animated WebP file; return other files unchanged.

    TensorFlow takes the number of channels from that flag, but decodes every animation with alpha.
    """
    flags = read_unsigned(data, _FLAGS_OFFSET, 1)
    is_animated = tf.equal(substring(data, 8, 8), b"WEBPVP8X") & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    new_flags = tf.gather(tf.constant([bytes([value]) for value in range(256)]), flags | _HAS_ALPHA)
    corrected = [
        substring(data, 0, _FLAGS_OFFSET),
        new_flags,
        substring(data, _FLAGS_OFFSET + 1, tf.strings.length(data)),
    ]
    return tf.cond(is_animated, lambda: tf.strings.join(corrected), lambda: data)
