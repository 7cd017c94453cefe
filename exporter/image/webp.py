"""What a WebP file says of itself, and what TensorFlow's decoder needs to be told of it (RFC 9649, section 2)."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.image import chunks
from savedmodel_bakery.exporter.image.bytes_ops import number, text

# Of the flags of a VP8X chunk, and of the fifth byte of a VP8L chunk.
_HAS_ALPHA, _IS_ANIMATED = 0x10, 0x02
_FLAGS = 20


def read_header(data: Any) -> tuple[Any, Any, Any, Any]:
    """Height, width, place of the EXIF block and alpha of a file, as in header.read_header."""
    exif_at, of_alpha, lossless = chunks.find_in_riff(data, (b"EXIF", b"ALPH", b"VP8L"))
    # Of each kind the bytes of height and width, their lowest bits, and what is added.
    bits = number(data, 21, 4, little=True)
    sides = tf.stack(
        [
            [number(data, 28, 2, little=True) % 2**14, number(data, 26, 2, little=True) % 2**14],
            [bits // 2**14 % 2**14 + 1, bits % 2**14 + 1],
            [number(data, 27, 3, little=True) + 1, number(data, 24, 3, little=True) + 1],
        ]
    )
    is_kind = tf.equal(text(data, 12, 4), (b"VP8 ", b"VP8L", b"VP8X"))
    height, width = tf.unstack(tf.reduce_sum(tf.where(is_kind[:, tf.newaxis], sides, tf.zeros_like(sides)), axis=0))
    # As WebPGetFeatures has it: what a lossless picture itself says counts. Animations are always decoded with alpha.
    flags = number(data, _FLAGS, 1)
    animated = is_kind[2] & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    announced = is_kind[2] & (tf.equal(flags & _HAS_ALPHA, _HAS_ALPHA) | (of_alpha > 0))
    lossless_alpha = tf.equal(number(data, lossless + 4, 1) & _HAS_ALPHA, _HAS_ALPHA)
    alpha = animated | tf.where(lossless > 0, lossless_alpha, announced)
    return height, width, exif_at, alpha


def announce_alpha(data: Any) -> Any:
    """The file, and where it is an animated WebP file, one that says it has alpha.

    TensorFlow takes the number of channels from that flag, but decodes every animation with alpha.
    """
    flags = number(data, _FLAGS, 1)
    is_animated = tf.equal(text(data, 8, 8), b"WEBPVP8X") & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    octet = tf.gather(tf.constant([bytes([value]) for value in range(256)]), flags | _HAS_ALPHA)
    changed = [text(data, 0, _FLAGS), octet, text(data, _FLAGS + 1, tf.strings.length(data))]
    return tf.cond(is_animated, lambda: tf.strings.join(changed), lambda: data)
