"""One image file to the pixels of a network's input: decode, crop, resize; and what the network sees of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import tensorflow as tf

from exporter.image import spelling
from exporter.recipe import Recipe


def decode_file(data: Any) -> Any:
    """Pixels uint8 [height, width, 3], R, G, B, of the file in scalar string `data`; fails on what can't be decoded.

    JPEG's inverse DCT is the exact one, which agrees with Pillow's bit for bit; TensorFlow's default is up to 6
    levels off. Of an animation the first frame counts; gray becomes three equal channels; alpha is dropped.
    """
    pixels = tf.cond(
        spelling.is_jpeg(data),
        lambda: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
    )
    return tf.ensure_shape(pixels, [None, None, 3])


def fit(pixels: Any, recipe: Recipe) -> Any:
    """Crop and resize `pixels` uint8 [height, width, 3] as the recipe says: float32 [*recipe.size, 3].

    Values are 0..255, or a little beyond where the resize method overshoots.
    """
    fraction = recipe.crop_fraction
    if fraction is not None:
        pixels = _central_square(pixels, fraction)
    resized = tf.image.resize(pixels, recipe.size, method=recipe.resize, antialias=recipe.antialias)
    return tf.ensure_shape(tf.cast(resized, tf.float32), [*recipe.size, 3])


def normalise(pixels: Any, recipe: Recipe) -> Any:
    """What the network sees of `pixels`, float32 [batch, height, width, 3] in R, G, B, 0..255."""
    mean, std = recipe.mean_and_std
    scaled = (pixels - tf.constant(mean)) / tf.constant(std)
    return scaled[..., ::-1] if recipe.channels == "BGR" else scaled


def _central_square(pixels: Any, fraction: Fraction) -> Any:
    shape = tf.shape(pixels, out_type=tf.int64)
    height, width = shape[0], shape[1]
    # Whole numbers, because a float fraction can be off by a pixel where the product is one.
    side = tf.maximum(tf.minimum(height, width) * fraction.numerator // fraction.denominator, 1)
    # An odd margin leaves the larger half above and to the left, as the networks of github.com/tensorflow/tpu were
    # trained (models/official/efficientnet/preprocessing.py, _decode_and_center_crop).
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    return pixels[top : top + side, left : left + side]
