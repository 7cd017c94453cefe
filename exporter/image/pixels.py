"""One image file to the pixels of a network's input: decode, crop, resize; and what the network sees of them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import tensorflow as tf

from exporter.image import header, spelling
from exporter.recipe import Recipe


def decode_file(data: Any, recipe: Recipe) -> Any:
    """Pixels uint8 [height, width, 3], R, G, B, of the file in scalar string `data`; fails on what can't be decoded.

    A JPEG photo is turned upright as its EXIF orientation says, unless the recipe ignores it. A picture of more pixels
    than the recipe allows fails before it is decoded.

    JPEG's inverse DCT is the exact one, which agrees with Pillow's bit for bit; TensorFlow's default is up to 6
    levels off. Of an animation the first frame counts; gray becomes three equal channels; alpha is dropped.
    """
    height, width, orientation = header.read_header(data)
    with tf.control_dependencies([tf.debugging.Assert(height * width <= recipe.max_pixels, ["too many pixels"])]):
        data = tf.identity(data)
    pixels = tf.cond(
        spelling.is_jpeg(data),
        lambda: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
        lambda: tf.cond(
            tf.equal(tf.strings.substr(data, 0, 2), b"BM"),
            lambda: _decode_bmp(data),
            lambda: tf.io.decode_image(data, channels=3, expand_animations=False),
        ),
    )
    pixels = tf.ensure_shape(pixels, [None, None, 3])
    if recipe.orientation == "ignore":
        return pixels
    return tf.cond(tf.equal(orientation, 1), lambda: pixels, lambda: _upright(pixels, orientation))


def _upright(pixels: Any, orientation: Any) -> Any:
    """Turn `pixels` uint8 [height, width, 3] as EXIF orientation 1..8 says (Exif 2.3, section 4.6.4, Orientation)."""
    axes = [1, 0, 2]
    return tf.switch_case(
        orientation - 1,
        [
            lambda: pixels,
            lambda: tf.reverse(pixels, [1]),
            lambda: tf.reverse(pixels, [0, 1]),
            lambda: tf.reverse(pixels, [0]),
            lambda: tf.transpose(pixels, axes),
            lambda: tf.reverse(tf.transpose(pixels, axes), [1]),
            lambda: tf.reverse(tf.transpose(pixels, axes), [0, 1]),
            lambda: tf.reverse(tf.transpose(pixels, axes), [0]),
        ],
    )


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
    """What the network sees of `pixels`, float32 [batch, height, width, 3] in R, G, B, 0..255.

    Gray is Rec. 601's luma, as in tf.image.rgb_to_grayscale.
    """
    mean, std = recipe.mean_and_std
    if recipe.channels == "GRAY":
        return (tf.image.rgb_to_grayscale(pixels) - mean[0]) / std[0]
    scaled = (pixels - tf.constant(mean)) / tf.constant(std)
    return scaled[..., ::-1] if recipe.channels == "BGR" else scaled


def _decode_bmp(data: Any) -> Any:
    """Pixels uint8 [height, width, 3] of a BMP file (BITMAPINFOHEADER in Microsoft's "Bitmap Storage").

    TensorFlow's decoder shows the indices into a palette as gray levels, and reads compressed or otherwise ordered
    bytes as if they were plain ones. So the colours are looked up here, and what it would get wrong fails.
    """
    header = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, 54), tf.uint8), tf.int32)
    header_size, bits, compression = header[14], header[28], header[30]
    usual_masks = tf.equal(tf.strings.substr(data, 54, 12), b"\0\0\xff\0\0\xff\0\0\xff\0\0\0")
    plain = tf.equal(compression, 0) | (tf.equal(compression, 3) & tf.equal(bits, 32) & usual_masks)
    with tf.control_dependencies([tf.debugging.Assert(plain & (header_size >= 40), ["no plain BMP"])]):
        pixels = tf.io.decode_image(data, channels=3, expand_animations=False)

    def look_up() -> Any:
        palette = tf.io.decode_raw(tf.strings.substr(data, 14 + header_size, 4 * 256), tf.uint8)
        colours = tf.reshape(palette[: tf.size(palette) // 4 * 4], [-1, 4])[:, 2::-1]
        return tf.gather(colours, tf.cast(pixels[..., 0], tf.int32))

    return tf.cond(tf.equal(bits, 8), look_up, lambda: pixels)


def _central_square(pixels: Any, fraction: Fraction) -> Any:
    shape = tf.shape(pixels, out_type=tf.int64)
    height, width = shape[0], shape[1]
    # Whole numbers, because a float fraction can be off by a pixel where the product is one.
    side = tf.maximum(tf.minimum(height, width) * fraction.numerator // fraction.denominator, 1)
    # An odd margin leaves the larger half above and to the left, as the networks of github.com/tensorflow/tpu were
    # trained (models/official/efficientnet/preprocessing.py, _decode_and_center_crop).
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    return pixels[top : top + side, left : left + side]
