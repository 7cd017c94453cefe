"""What is transparent lets a background through."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

# Mixing takes several times the memory of the pixels; this many at a time, it doesn't count.
_PIXELS_AT_A_TIME = 2**20

_EIGHT = np.uint16(8)  # shifts take the type of what they shift


def composite(pixels: Any, background: tuple[int, int, int]) -> Any:
    """Lay `pixels` uint8 [height, width, 4] (R, G, B, alpha) over `background`: uint8 [height, width, 3].

    Levels are rounded to the nearest; no half can occur, as 255 is odd.
    """
    height, width = tf.unstack(tf.shape(pixels)[:2])
    step = tf.maximum(_PIXELS_AT_A_TIME // tf.maximum(width, 1), 1)
    strips = tf.TensorArray(
        tf.uint8, size=(height + step - 1) // step, infer_shape=False, element_shape=[None, None, 3]
    )

    def mix(index: Any, strips: Any) -> tuple[Any, Any]:
        # A level times an alpha is at most 255 · 255, which 16 bits hold, and rounding too.
        strip = tf.cast(pixels[index * step : (index + 1) * step], tf.uint16)
        colour, alpha = strip[..., :3], strip[..., 3:]
        mixed = colour * alpha + tf.constant(background, tf.uint16) * (255 - alpha) + 128
        # Divided by 255: 1/255 is 1/256 + 1/256² and a rest that is too small to matter below 65536.
        mixed = tf.bitwise.right_shift(mixed + tf.bitwise.right_shift(mixed, _EIGHT), _EIGHT)
        return index + 1, strips.write(index, tf.cast(mixed, tf.uint8))

    _, strips = tf.while_loop(
        lambda index, _: index < strips.size(), mix, (tf.constant(0), strips), parallel_iterations=1
    )
    return strips.concat()
