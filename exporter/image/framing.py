"""Which part of a picture is kept, which way up it is, and where it comes to lie in the network's input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.recipe import LETTERBOX, Preprocessing

# Exif 2.3, section 4.6.4, Orientation: to be upright, a picture of orientation 1..8 is transposed or not, then the
# order of its rows and that of its columns is reversed or not.
_TRANSPOSED = (False, False, False, False, True, True, True, True)
_ROWS_REVERSED = (False, False, True, True, False, False, True, True)
_COLUMNS_REVERSED = (False, True, True, False, False, True, True, False)


class Window(NamedTuple):
    """A part of a picture, in pixels, scalar int64."""

    top: Any
    left: Any
    height: Any
    width: Any

    def cut(self, pixels: Any) -> Any:
        """That part of `pixels` [height, width, channels]."""
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]

    def scaled(self, ratio: Any) -> Window:
        """The same part of a picture made smaller by `ratio`, to the nearest pixel."""
        top, left, bottom, right = (
            (2 * edge + ratio) // (2 * ratio)
            for edge in (self.top, self.left, self.top + self.height, self.left + self.width)
        )
        return Window(top, left, bottom - top, right - left)


def kept(height: Any, width: Any, preprocessing: Preprocessing) -> Window:
    """What is kept of an upright picture of that size: its central square, or all of it."""
    fraction = preprocessing.crop_fraction
    if fraction is None:
        nothing = tf.constant(0, tf.int64)
        return Window(nothing, nothing, height, width)
    return _central_square(height, width, fraction)


def _central_square(height: Any, width: Any, fraction: Fraction) -> Window:
    # Whole numbers, because a float fraction can be off by a pixel where the product is one.
    side = tf.maximum(tf.minimum(height, width) * fraction.numerator // fraction.denominator, 1)
    # An odd margin leaves the larger half above and to the left, as the networks of github.com/tensorflow/tpu were
    # trained (models/official/efficientnet/preprocessing.py, _decode_and_center_crop).
    return Window((height - side + 1) // 2, (width - side + 1) // 2, side, side)


def is_transposed(orientation: Any) -> Any:
    """Whether height and width change places when a picture of EXIF `orientation` 1..8 is turned upright."""
    return tf.gather(_TRANSPOSED, orientation - 1)


def before_turning(window: Window, height: Any, width: Any, orientation: Any) -> Window:
    """Where `window` of an upright picture of that size lies in the picture as it is stored."""
    top = tf.where(tf.gather(_ROWS_REVERSED, orientation - 1), height - window.top - window.height, window.top)
    left = tf.where(tf.gather(_COLUMNS_REVERSED, orientation - 1), width - window.left - window.width, window.left)
    swap = is_transposed(orientation)
    return Window(
        tf.where(swap, left, top),
        tf.where(swap, top, left),
        tf.where(swap, window.width, window.height),
        tf.where(swap, window.height, window.width),
    )


def upright(pixels: Any, orientation: Any) -> Any:
    """Turn `pixels` uint8 [height, width, 3] as EXIF orientation 1..8 says."""

    def turn() -> Any:
        swap = is_transposed(orientation)
        rows, columns = (tf.gather(axes, orientation - 1) for axes in (_ROWS_REVERSED, _COLUMNS_REVERSED))
        # Rows after transposing are columns before it, and columns are faster to reverse.
        before = tf.reverse(pixels, tf.boolean_mask([1], [swap & rows]))
        turned = tf.transpose(before, tf.where(swap, [1, 0, 2], [0, 1, 2]))
        return tf.reverse(turned, tf.boolean_mask([0, 1], [rows & ~swap, columns]))

    return tf.cond(orientation > 1, turn, lambda: pixels)


def fitted_size(height: Any, width: Any, preprocessing: Preprocessing) -> tuple[Any, Any]:
    """Height and width to which a part of that size is resized: the network's, or for a letterbox what fits into it.

    A letterbox's shorter side is rounded to the nearest pixel, halves up, and is at least one.
    """
    most_height, most_width = (tf.constant(side, tf.int64) for side in preprocessing.size)
    if preprocessing.crop != LETTERBOX:
        return most_height, most_width

    def scaled(side: Any, numerator: Any, denominator: Any) -> Any:
        return tf.maximum((2 * side * numerator + denominator) // (2 * denominator), 1)

    is_wide = width * most_height >= height * most_width
    return (
        tf.where(is_wide, scaled(height, most_width, width), most_height),
        tf.where(is_wide, most_width, scaled(width, most_height, height)),
    )


def place(pixels: Any, size: tuple[Any, Any], corner: tuple[Any, Any], colour: tuple[int, int, int]) -> Any:
    """Put `pixels` [height, width, 3] on a canvas of one colour.

    Args:
        pixels: what is put on it.
        size: height and width of the canvas, scalar int64 or int.
        corner: how far below and right of the canvas's upper left corner that of the pixels lies.
        colour: R, G, B of the canvas, 0..255.
    """
    margins = [
        [before, whole - before - part]
        for before, whole, part in zip(corner, size, tf.unstack(tf.shape(pixels, out_type=tf.int64)[:2]), strict=True)
    ]
    padded = tf.pad(pixels, [*margins, [0, 0]])
    is_covered = tf.pad(tf.ones_like(pixels[..., :1], tf.bool), [*margins, [0, 0]])
    return tf.where(is_covered, padded, tf.cast(colour, pixels.dtype))
