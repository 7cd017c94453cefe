"""Composites transparent pixels over a background."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import Integer, Pixels, Tensor

# Mixing needs several times the memory of the pixels, so it is done in strips of about this many pixels.
_STRIP_PIXELS = 2**20

_EIGHT = np.uint16(8)  # a shift needs the dtype of what it shifts


def composite(pixels: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Composite `pixels` [height, width, 4] over `background`: [height, width, 3].

    Levels are rounded to the nearest; ties can't occur, as 255 is odd.
    """
    height, width = tf.unstack(tf.shape(pixels)[:2])
    step = tf.maximum(_STRIP_PIXELS // tf.maximum(width, 1), 1)
    strips = tf.TensorArray(
        tf.uint8, size=(height + step - 1) // step, infer_shape=False, element_shape=[None, None, 3]
    )

    def mix(index: Integer, strips: Tensor) -> tuple[Integer, Tensor]:
        # A level times an alpha is at most 255 · 255; 16 bits hold that and the rounding.
        strip = tf.cast(pixels[index * step : (index + 1) * step], tf.uint16)
        colour, alpha = strip[..., :3], strip[..., 3:]
        mixed = colour * alpha + tf.constant(background, tf.uint16) * (255 - alpha) + 128
        # Division by 255: 1/255 is 1/256 + 1/256² and a remainder that makes no difference below 65536.
        mixed = tf.bitwise.right_shift(mixed + tf.bitwise.right_shift(mixed, _EIGHT), _EIGHT)
        return index + 1, strips.write(index, tf.cast(mixed, tf.uint8))

    _, strips = tf.while_loop(
        lambda index, _: index < strips.size(), mix, (tf.constant(0), strips), parallel_iterations=1
    )
    return strips.concat()
