"""Decodes, crops, turns upright, resizes and normalises one image."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import with_fallback
from savedmodel_bakery.exporter.image import bmp, chunks, encodings, framing, gif
from savedmodel_bakery.exporter.image.bytes_ops import read_unsigned
from savedmodel_bakery.exporter.image.header import Header
from savedmodel_bakery.exporter.recipe import MAX_WHITE, PADDED, Preprocessing
from savedmodel_bakery.exporter.tensor_types import (
    Flag,
    ImageBytes,
    Integer,
    NetworkPixels,
    NormalisedBatch,
    Orientation,
    PixelBatch,
    Pixels,
    Tensor,
)

# JPEG's inverse DCT can omit detail (ITU-T T.81, A.3.3): the decoded image is smaller by one of these ratios.
RATIOS = (1, 2, 4, 8)
# The decoded image must still be this many times larger than the network's input, so that resizing has pixels to mix.
MIN_OVERSAMPLING = 2

# Conversions need several times the memory of the pixels, so they are done in strips of about this many pixels.
_STRIP_PIXELS = 2**20

_EIGHT = np.uint16(8)  # a shift needs the dtype of what it shifts

_DCT = {"accurate": "INTEGER_ACCURATE", "fast": "INTEGER_FAST"}
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}  # names in TensorFlow's operation
_REACH = 5  # pixels that a kernel is wide to each side, at most, without antialias
_NO_PIXELS = np.zeros([0, 0, 3], np.uint8)
NO_NETWORK_PIXELS = np.zeros([0, 0, 3], np.float32)
"""Stands for the pixels of an image that can't be read."""


class DecodedImage(NamedTuple):
    """The part of an image that the recipe keeps."""

    pixels: Pixels  # upright; [0, 0, 3] if the file can't be decoded
    place: framing.Window  # where they lie in the network's input when they have been resized


def read_file(data: ImageBytes, header: Header, preprocessing: Preprocessing) -> NetworkPixels:
    """Decode, crop, turn upright and resize a file; `NO_NETWORK_PIXELS` if it can't be decoded.

    Pixels are 0..255, or slightly beyond if the resize method overshoots.
    """
    decoded = decode_file(data, header, preprocessing)
    return tf.cond(
        tf.size(decoded.pixels) > 0, lambda: resize(decoded, preprocessing), lambda: tf.constant(NO_NETWORK_PIXELS)
    )


def decode_file(data: ImageBytes, header: Header, preprocessing: Preprocessing) -> DecodedImage:
    """Decode the part of a file that the recipe keeps.

    With the accurate inverse DCT, JPEG matches Pillow bit for bit. An animation is represented by its first frame, and
    gray becomes three equal channels. With `decode` fast, a JPEG photo may be decoded at a smaller size.
    """
    orientation = shown_orientation(header, preprocessing)
    height, width = framing.upright_size(header.height, header.width, orientation)
    window = framing.kept_window(height, width, preprocessing)
    place = framing.fit(window.height, window.width, preprocessing)
    stored_window = framing.to_stored(window, height, width, orientation)
    ratio_index = _ratio_index(header, window, place, preprocessing)
    decoded_window = stored_window.scaled_down(tf.gather(tf.constant(RATIOS, tf.int64), ratio_index))

    def crop(decode: Callable[[ImageBytes], Pixels], data: ImageBytes = data) -> Pixels:
        return _decode_and_crop(decoded_window, decode, data)

    pixels = tf.switch_case(
        header.file_format,
        {
            encodings.UNKNOWN: lambda: tf.constant(_NO_PIXELS),
            encodings.JPEG: lambda: _decode_jpeg(data, header, decoded_window, ratio_index, preprocessing),
            encodings.PNG: lambda: crop(lambda data: _decode_png(data, header.has_alpha, preprocessing.white)),
            encodings.GIF: lambda: crop(lambda data: gif.decode(data, preprocessing.background_colour)),
            encodings.BMP: lambda: crop(bmp.decode),
            encodings.WEBP: lambda: crop(
                lambda data: _decode_with_alpha(data, header.has_alpha), chunks.set_webp_alpha_flag(data)
            ),
        },
    )
    is_complete = tf.reduce_all(tf.equal(tf.shape(pixels, tf.int64)[:2], [decoded_window.height, decoded_window.width]))
    pixels = tf.cond(
        is_complete, lambda: _make_opaque(pixels, header.has_alpha, preprocessing), lambda: tf.constant(_NO_PIXELS)
    )
    return DecodedImage(framing.turn_upright(pixels, orientation), place)


def shown_orientation(header: Header, preprocessing: Preprocessing) -> Orientation:
    """Return the orientation from which a file is turned upright: its own, or 1 if the recipe ignores that."""
    return header.orientation if preprocessing.orientation == "exif" else tf.constant(1)


def _ratio_index(
    header: Header, window: framing.Window, place: framing.Window, preprocessing: Preprocessing
) -> Integer:
    """Return the index in RATIOS of the largest suitable ratio; 0 unless the file is a JPEG photo."""
    if preprocessing.decode == "exact":
        return tf.constant(0)
    oversampling = tf.minimum(
        window.height // (MIN_OVERSAMPLING * place.height), window.width // (MIN_OVERSAMPLING * place.width)
    )
    suitable = tf.reduce_sum(tf.cast(oversampling >= tf.constant(RATIOS[1:], tf.int64), tf.int32))
    return tf.where(tf.equal(header.file_format, encodings.JPEG), suitable, 0)


def _decode_jpeg(
    data: ImageBytes, header: Header, window: framing.Window, ratio_index: Integer, preprocessing: Preprocessing
) -> Pixels:
    """Decode a JPEG file at a smaller size and return a window of the result.

    At a ratio above 1, rows outside the window are not decoded; of a file that isn't progressive, the bytes after the
    window are not read.
    """
    dct = _DCT[preprocessing.jpeg_dct]

    def full_size() -> Pixels:
        return _decode_and_crop(window, lambda data: tf.io.decode_jpeg(data, channels=3, dct_method=dct), data)

    def smaller(ratio: int) -> Pixels:
        # Skip rows only. A decoder that skips columns too may return uninitialised memory (jpeg_crop_scanline of
        # libjpeg-turbo before 3.0, where chroma is stored at a quarter of the width).
        rows = tf.cast(tf.stack([window.top, 0, window.height, -(-header.width // ratio)]), tf.int32)
        return _decode_and_crop(
            window._replace(top=0),
            lambda data: tf.image.decode_and_crop_jpeg(data, rows, channels=3, ratio=ratio, dct_method=dct),
            data,
        )

    if preprocessing.decode == "exact":
        return full_size()
    return tf.switch_case(ratio_index, [full_size, *(lambda ratio=ratio: smaller(ratio) for ratio in RATIOS[1:])])


def _decode_and_crop(window: framing.Window, decode: Callable[[ImageBytes], Pixels], data: ImageBytes) -> Pixels:
    """Return a window of `decode(data)`, or no pixels if decoding fails.

    The crop is inside the fallback because the result of a fallback stays in memory until the image is complete.
    """
    return with_fallback(lambda data: window.crop(decode(data)), data, fallback=_NO_PIXELS)


def _decode_with_alpha(data: ImageBytes, has_alpha: Flag) -> Pixels:
    """Decode a PNG or WebP file to 4 channels if it has alpha, else to 3."""

    def decode(channels: int) -> Pixels:
        # Never with channels=0: DecodeImage of TensorFlow 2.21 writes beyond its buffer if an animated WebP file
        # states that it has no alpha. With 3 or 4 it rejects a file that doesn't match.
        decoded = tf.io.decode_image(data, channels=channels, expand_animations=False)
        return tf.ensure_shape(tf.ensure_shape(decoded, [None, None, channels]), [None, None, None])

    return tf.cond(has_alpha, lambda: decode(4), lambda: decode(3))


def _decode_png(data: ImageBytes, has_alpha: Flag, white: int) -> Pixels:
    """Decode a PNG file to 4 channels if it has alpha, else to 3; of levels of 16 bits, `white` becomes 255."""
    if white == MAX_WHITE:  # the decoder itself keeps the upper 8 bits
        return _decode_with_alpha(data, has_alpha)

    def decode(channels: int) -> Pixels:
        levels = tf.io.decode_png(data, channels=channels, dtype=tf.uint16)
        scale = tf.constant([255 / white] * 3 + [255 / MAX_WHITE] * (channels - 3))
        return _in_strips(levels, lambda strip: tf.round(tf.minimum(tf.cast(strip, tf.float32) * scale, 255)), channels)

    is_deep = tf.equal(read_unsigned(data, 24, 1), 16)  # the header's bit depth
    return tf.cond(
        is_deep,
        lambda: tf.cond(has_alpha, lambda: decode(4), lambda: decode(3)),
        lambda: _decode_with_alpha(data, has_alpha),
    )


def _make_opaque(pixels: Pixels, has_alpha: Flag, preprocessing: Preprocessing) -> Pixels:
    """Remove the alpha channel as the recipe says; return pixels without one unchanged."""

    def remove() -> Pixels:
        if preprocessing.alpha == "drop":
            return pixels[..., :3]
        return _composite(pixels, preprocessing.background_colour)

    return tf.ensure_shape(tf.cond(has_alpha, remove, lambda: pixels), [None, None, 3])


def _composite(pixels: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Composite `pixels` [height, width, 4] over `background`: [height, width, 3].

    Levels are rounded to the nearest; ties can't occur, as 255 is odd.
    """

    def mix(strip: Pixels) -> Tensor:
        # A level times an alpha is at most 255 · 255; 16 bits hold that and the rounding.
        strip = tf.cast(strip, tf.uint16)
        colour, alpha = strip[..., :3], strip[..., 3:]
        mixed = colour * alpha + tf.constant(background, tf.uint16) * (255 - alpha) + 128
        # Division by 255: 1/255 is 1/256 + 1/256² and a remainder that makes no difference below 65536.
        return tf.bitwise.right_shift(mixed + tf.bitwise.right_shift(mixed, _EIGHT), _EIGHT)

    return _in_strips(tf.ensure_shape(pixels, [None, None, 4]), mix, 3)


def _in_strips(pixels: Tensor, convert: Callable[[Tensor], Tensor], channels: int) -> Pixels:
    """Convert pixels to levels 0..255 of `channels` channels, in strips."""
    height, width = tf.unstack(tf.shape(pixels)[:2])
    step = tf.maximum(_STRIP_PIXELS // tf.maximum(width, 1), 1)
    strips = tf.TensorArray(
        tf.uint8, size=(height + step - 1) // step, infer_shape=False, element_shape=[None, None, channels]
    )

    def convert_next(index: Integer, strips: Tensor) -> tuple[Integer, Tensor]:
        strip = convert(pixels[index * step : (index + 1) * step])
        return index + 1, strips.write(index, tf.cast(strip, tf.uint8))

    _, strips = tf.while_loop(
        lambda index, _: index < strips.size(), convert_next, (tf.constant(0), strips), parallel_iterations=1
    )
    return strips.concat()


def resize(decoded: DecodedImage, preprocessing: Preprocessing) -> NetworkPixels:
    """Resize to `preprocessing.size`, on a canvas if the recipe letterboxes."""
    if preprocessing.short_side is not None:
        return _resize_centre(decoded, preprocessing)
    if preprocessing.crop == PADDED:
        return _resize_padded(decoded.pixels, preprocessing)
    is_letterboxed = preprocessing.letterbox_rounding is not None
    top, left, *fitted = decoded.place
    size = tf.cast(tf.stack(fitted), tf.int32) if is_letterboxed else tf.constant(preprocessing.size)

    def resize_to(pixels: Pixels, size: Tensor) -> Tensor:
        return tf.image.resize(pixels, size, method=preprocessing.resize, antialias=preprocessing.antialias)

    resized = (
        _small_first(resize_to, decoded.pixels, size) if preprocessing.antialias else resize_to(decoded.pixels, size)
    )
    resized = tf.cast(resized, tf.float32)
    if is_letterboxed:
        resized = framing.place_on_canvas(resized, preprocessing.size, (top, left), preprocessing.padding_colour)
    return tf.ensure_shape(resized, [*preprocessing.size, 3])


def _small_first(resize_to: Callable[..., Tensor], pixels: Pixels, size: Tensor, *vectors: Tensor) -> Tensor:
    """Resize `pixels` to `size`; vectors [vertical, horizontal] are passed on.

    TensorFlow's operation resizes columns first, and keeps the result. Of an image that is a million pixels wide and
    one high, that would be gigabytes, so an image that becomes higher is turned meanwhile.
    """

    def turned() -> Tensor:
        transposed = tf.transpose(pixels, [1, 0, 2])
        return tf.transpose(resize_to(transposed, size[::-1], *(vector[::-1] for vector in vectors)), [1, 0, 2])

    return tf.cond(tf.shape(pixels)[0] < size[0], turned, lambda: resize_to(pixels, size, *vectors))


def _resize_centre(decoded: DecodedImage, preprocessing: Preprocessing) -> NetworkPixels:
    """Resize and return the centre. What is around it, millions of pixels of a long photo, is never computed."""
    top, left, *resized_size = decoded.place
    size = tf.cast(tf.shape(decoded.pixels)[:2], tf.float32)

    def resize_to(pixels: Pixels, size: Tensor, scale: Tensor, translation: Tensor) -> Tensor:
        resized = tf.raw_ops.ScaleAndTranslate(
            images=pixels[tf.newaxis],
            size=size,
            scale=scale,
            translation=translation,
            kernel_type=_KERNELS.get(preprocessing.resize, preprocessing.resize),
            antialias=preprocessing.antialias,
        )
        return resized[0]

    vectors = tf.cast(tf.stack(resized_size), tf.float32) / size, tf.cast(tf.stack([top, left]), tf.float32)
    resized = _small_first(resize_to, decoded.pixels, tf.constant(preprocessing.size), *vectors)
    return tf.ensure_shape(resized, [*preprocessing.size, 3])


def _resize_padded(pixels: Pixels, preprocessing: Preprocessing) -> NetworkPixels:
    """Pad to the shape of the network's input, and resize with the margins."""
    height, width = tf.unstack(tf.shape(pixels, out_type=tf.int64)[:2])
    top, left = framing.margins_before(height, width, preprocessing.size)
    size = preprocessing.size
    resized = tf.cond(
        left > 0,
        lambda: _turned(_pad_rows(_turned(pixels), size[::-1], left, preprocessing)),
        lambda: _pad_rows(pixels, size, top, preprocessing),
    )
    return tf.ensure_shape(resized, [*size, 3])


def _turned(pixels: Tensor) -> Tensor:
    return tf.transpose(pixels, [1, 0, 2])


def _pad_rows(pixels: Pixels, size: tuple[int, int], margin: Integer, preprocessing: Preprocessing) -> Tensor:
    """Resize an image with a margin above and below to `size`.

    Columns first, and only rows of the margins that kernels mix with the image: of an image that is a million pixels
    wide and one high, all of them would be terabytes.
    """
    height, width = tf.unstack(tf.cast(tf.shape(pixels)[:2], tf.float32))
    colour, near = preprocessing.padding_colour, tf.minimum(margin, 2 * _REACH)
    narrow = _resize_columns(pixels, size[1], size[1] / width, 0.0, preprocessing)
    padded = framing.place_on_canvas(narrow, (tf.shape(pixels, tf.int64)[0] + 2 * near, size[1]), (near, 0), colour)
    scale = size[0] / (height + 2 * tf.cast(margin, tf.float32))
    offset = tf.cast(margin - near, tf.float32) * scale
    resized = _turned(_resize_columns(_turned(padded), size[0], scale, offset, preprocessing))
    from_centre = tf.abs(tf.range(size[0], dtype=tf.float32) + 0.5 - size[0] / 2) / scale
    is_mixed = from_centre < height / 2 + _REACH
    return tf.where(is_mixed[:, tf.newaxis, tf.newaxis], resized, tf.cast(colour, tf.float32))


def _resize_columns(
    pixels: Tensor, side: int, scale: Tensor, translation: Tensor, preprocessing: Preprocessing
) -> Tensor:
    return tf.raw_ops.ScaleAndTranslate(
        images=pixels[:, tf.newaxis],
        size=[1, side],
        scale=tf.stack([1.0, scale]),
        translation=tf.stack([0.0, translation]),
        kernel_type=_KERNELS.get(preprocessing.resize, preprocessing.resize),
        antialias=False,
    )[:, 0]


def normalise(pixels: PixelBatch, preprocessing: Preprocessing) -> NormalisedBatch:
    """Normalise pixels and order their channels as the network expects.

    Gray is Rec. 601 luma, as in tf.image.rgb_to_grayscale.
    """
    mean, std = preprocessing.mean_and_std
    if preprocessing.channels == "GRAY":
        return (tf.image.rgb_to_grayscale(pixels) - mean[0]) / std[0]
    # On whole rows, because broadcasting three numbers over an image takes five times as long. TensorFlow also turns
    # a division into a product, but with a reciprocal that may be off by a rounding error.
    height, width = pixels.shape[1:3]
    shift, scale = (np.tile(numbers, width) for numbers in (np.array(mean, "f4"), 1 / np.array(std, "f4")))
    scaled = tf.reshape((tf.reshape(pixels, [-1, height, width * 3]) - shift) * scale, [-1, height, width, 3])
    # A slice with a negative step would take ten times as long.
    return tf.reverse(scaled, [-1]) if preprocessing.channels == "BGR" else scaled
