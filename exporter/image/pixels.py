"""One image file to the pixels of a network's input: decode, crop, turn upright, resize; and what the network sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image import (
    encodings as spelling,
)
from savedmodel_bakery.exporter.image import (
    fallback as attempts,
)
from savedmodel_bakery.exporter.image import (
    framing,
    gif,
    transparency,
    webp,
)
from savedmodel_bakery.exporter.image.header import Header
from savedmodel_bakery.exporter.recipe import LETTERBOX, Preprocessing

# JPEG's inverse DCT can leave detail out (ITU-T T.81, A.3.3): a picture comes out smaller by one of these ratios.
RATIOS = (1, 2, 4, 8)
# What is decoded must still be this much larger than what the network is given, or resizing would have nothing to mix.
GUARD = 2

_DCT = "INTEGER_ACCURATE"
_NOTHING = np.zeros([0, 0, 3], np.uint8)


class Picture(NamedTuple):
    """What is kept of a file.

    Attributes:
        pixels: uint8 [height, width, 3], R, G, B, upright; without any where the file can't be decoded.
        size: height and width it is to be resized to, scalar int64 each.
    """

    pixels: Any
    size: tuple[Any, Any]


def read_file(data: Any, claims: Header, preprocessing: Preprocessing) -> tuple[Any, Any]:
    """The file in scalar string `data`, whose header `claims` a size, cropped and resized.

    Returns:
        pixels: float32 [*preprocessing.size, 3], 0..255, or a little beyond where the resize method overshoots.
        ok: scalar bool, whether it could be decoded; the pixels are zeros where it couldn't.
    """
    picture = decode_file(data, claims, preprocessing)
    ok = tf.size(picture.pixels) > 0
    return tf.cond(ok, lambda: fit(picture, preprocessing), lambda: tf.zeros([*preprocessing.size, 3])), ok


def decode_file(data: Any, claims: Header, preprocessing: Preprocessing) -> Picture:
    """What is kept of the file in scalar string `data`, whose header `claims` a size.

    JPEG's inverse DCT is the accurate one, which agrees with Pillow's bit for bit; TensorFlow's default is up to 6
    levels off. Of an animation the first frame counts; gray becomes three equal channels; what is transparent lets
    the background through. With `decode` fast a JPEG photo may come out smaller.
    """
    orientation = claims.orientation if preprocessing.orientation == "exif" else tf.constant(1)
    swap = framing.is_transposed(orientation)
    height = tf.where(swap, claims.width, claims.height)
    width = tf.where(swap, claims.height, claims.width)
    window = framing.kept(height, width, preprocessing)
    size = framing.fitted_size(window.height, window.width, preprocessing)
    stored = framing.before_turning(window, height, width, orientation)
    index = _ratio_index(claims, window, size, preprocessing)
    part = stored.scaled(tf.gather(tf.constant(RATIOS, tf.int64), index))

    def cut(decode: Callable[[Any], Any], data: Any = data) -> Any:
        return _cut_out(part, decode, data)

    pixels = tf.switch_case(
        claims.kind,
        {
            spelling.NO_IMAGE: lambda: tf.constant(_NOTHING),
            spelling.JPEG: lambda: _decode_jpeg(data, claims, part, index, preprocessing),
            spelling.PNG: lambda: cut(lambda data: _decode_channels(data, claims.alpha)),
            spelling.GIF: lambda: cut(lambda data: gif.decode(data, preprocessing.background_colour)),
            spelling.BMP: lambda: cut(_decode_bmp),
            spelling.WEBP: lambda: cut(lambda data: _decode_channels(data, claims.alpha), webp.announce_alpha(data)),
        },
    )
    is_whole = tf.reduce_all(tf.equal(tf.shape(pixels, tf.int64)[:2], [part.height, part.width]))
    pixels = tf.cond(is_whole, lambda: _opaque(pixels, claims.alpha, preprocessing), lambda: tf.constant(_NOTHING))
    return Picture(framing.upright(pixels, orientation), size)


def _ratio_index(claims: Header, window: framing.Window, size: tuple[Any, Any], preprocessing: Preprocessing) -> Any:
    """Which of RATIOS suits a file whose `window` becomes `size`: scalar int32; the first where it is no JPEG photo."""
    if preprocessing.decode == "exact":
        return tf.constant(0)
    room = tf.minimum(window.height // (GUARD * size[0]), window.width // (GUARD * size[1]))
    fitting = tf.reduce_sum(tf.cast(room >= tf.constant(RATIOS[1:], tf.int64), tf.int32))
    return tf.where(tf.equal(claims.kind, spelling.JPEG), fitting, 0)


def _decode_jpeg(
    data: Any, claims: Header, part: framing.Window, ratio_index: Any, preprocessing: Preprocessing
) -> Any:
    """The `part` of a JPEG file that has been made smaller by the ratio of that index: uint8 [height, width, 3].

    Where it is made smaller, rows outside are not decoded; what a file that isn't progressive has below is not read.
    """

    def whole() -> Any:
        return _cut_out(part, lambda data: tf.io.decode_jpeg(data, channels=3, dct_method=_DCT), data)

    def smaller(ratio: int) -> Any:
        # Rows alone: a decoder that is to leave columns out as well may show memory that is none of the picture's
        # (jpeg_crop_scanline of libjpeg-turbo before 3.0, where chroma is stored at a quarter of the width).
        rows = tf.cast(tf.stack([part.top, 0, part.height, -(-claims.width // ratio)]), tf.int32)
        return _cut_out(
            part._replace(top=0),
            lambda data: tf.image.decode_and_crop_jpeg(data, rows, channels=3, ratio=ratio, dct_method=_DCT),
            data,
        )

    if preprocessing.decode == "exact":
        return whole()
    return tf.switch_case(ratio_index, [whole, *(lambda ratio=ratio: smaller(ratio) for ratio in RATIOS[1:])])


def _cut_out(part: framing.Window, decode: Callable[[Any], Any], data: Any) -> Any:
    """The `part` of what `decode` makes of `data`: uint8 [height, width, channels]; nothing where that fails.

    It is cut inside of the attempt, as what comes out of one stays in memory until the image is ready.
    """
    return attempts.attempt(lambda data: part.cut(decode(data)), data, otherwise=_NOTHING)


def _decode_channels(data: Any, alpha: Any) -> Any:
    """Pixels uint8 [height, width, channels] of a PNG or WebP file; 4 channels where it has `alpha`, else 3."""

    def decode(channels: int) -> Any:
        # Never with channels=0: DecodeImage of TensorFlow 2.21 then writes beyond its buffer if an animated WebP file
        # says it has no alpha. With 3 or 4 it refuses what doesn't fit.
        decoded = tf.io.decode_image(data, channels=channels, expand_animations=False)
        return tf.ensure_shape(tf.ensure_shape(decoded, [None, None, channels]), [None, None, None])

    return tf.cond(alpha, lambda: decode(4), lambda: decode(3))


def _opaque(pixels: Any, alpha: Any, preprocessing: Preprocessing) -> Any:
    """Pixels uint8 [height, width, 3] of those with 4 channels where there is `alpha`, else with 3."""

    def composited() -> Any:
        return transparency.composite(tf.ensure_shape(pixels, [None, None, 4]), preprocessing.background_colour)

    return tf.ensure_shape(tf.cond(alpha, composited, lambda: pixels), [None, None, 3])


def fit(picture: Picture, preprocessing: Preprocessing) -> Any:
    """Resize what is kept, and lay a letterbox on its canvas: float32 [*preprocessing.size, 3]."""
    letterbox = preprocessing.crop == LETTERBOX
    size = tf.cast(picture.size, tf.int32) if letterbox else preprocessing.size
    resized = tf.image.resize(picture.pixels, size, method=preprocessing.resize, antialias=preprocessing.antialias)
    resized = tf.cast(resized, tf.float32)
    if letterbox:
        # The smaller half of an odd margin is above and to the left.
        corner = tuple((whole - part) // 2 for whole, part in zip(preprocessing.size, picture.size, strict=True))
        resized = framing.place(resized, preprocessing.size, corner, preprocessing.padding_colour)
    return tf.ensure_shape(resized, [*preprocessing.size, 3])


def normalise(pixels: Any, preprocessing: Preprocessing) -> Any:
    """What the network sees of `pixels`, float32 [batch, height, width, 3] in R, G, B, 0..255.

    Gray is Rec. 601's luma, as in tf.image.rgb_to_grayscale.
    """
    mean, std = preprocessing.mean_and_std
    if preprocessing.channels == "GRAY":
        return (tf.image.rgb_to_grayscale(pixels) - mean[0]) / std[0]
    # By whole rows: three numbers broadcast to a picture take five times as long. TensorFlow makes a product of a
    # division too, but by a reciprocal that may be off by a rounding error.
    height, width = pixels.shape[1:3]
    shift, scale = (np.tile(numbers, width) for numbers in (np.array(mean, "f4"), 1 / np.array(std, "f4")))
    scaled = tf.reshape((tf.reshape(pixels, [-1, height, width * 3]) - shift) * scale, [-1, height, width, 3])
    return scaled[..., ::-1] if preprocessing.channels == "BGR" else scaled


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
