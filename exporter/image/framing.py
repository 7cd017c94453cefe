"""Geometry of an image: the part a recipe keeps, its orientation, and its place in the network's input."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tensor_types import Flag, Integer, Orientation, Pixels, Side, Sides, Size, Tensor

# Exif 2.3, section 4.6.4, Orientation: to turn an image of orientation 1..8 upright, transpose it or not, then reverse
# its rows or not and its columns or not.
_IS_TRANSPOSED = (False, False, False, False, True, True, True, True)
_ROWS_REVERSED = (False, False, True, True, False, False, True, True)
_COLUMNS_REVERSED = (False, True, True, False, False, True, True, False)


class Window(NamedTuple):
    """A rectangle in an image, in pixels."""

    top: Side
    left: Side
    height: Side
    width: Side

    def crop(self, pixels: Pixels) -> Pixels:
        """Cut the window out of `pixels` [height, width, channels]."""
        return pixels[self.top : self.top + self.height, self.left : self.left + self.width]

    def scaled_down(self, ratio: Integer) -> Window:
        """Return the same window of an image that is `ratio` times smaller, with edges rounded to pixels."""
        top, left, bottom, right = (
            (2 * edge + ratio) // (2 * ratio)
            for edge in (self.top, self.left, self.top + self.height, self.left + self.width)
        )
        return Window(top, left, bottom - top, right - left)


class Placement(NamedTuple):
    """The position of the upright photo in the network's input, per image of a batch."""

    height: Sides  # of the photo, in pixels
    width: Sides
    window: Window  # where the photo lies, in pixels of the network's input


def place(sizes: Tensor, preprocessing: Preprocessing) -> Placement:
    """Return the placements of upright photos, int64 [batch, 2]: their heights and widths.

    Not for recipes that crop a fraction.
    """
    height, width = tf.unstack(sizes, axis=1)
    return Placement(height, width, fit(height, width, preprocessing))


def to_photo(points: Tensor, sizes: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Convert points from the network's input to upright photos of these sizes; see `place`.

    The points are float32 [batch, any number, 2], each y and x in pixels.
    """
    height, width, window = place(sizes, preprocessing)
    corner, fitted, whole = (
        tf.cast(tf.stack(sides, axis=1), tf.float32)[:, tf.newaxis]
        for sides in ((window.top, window.left), (window.height, window.width), (height, width))
    )
    return (points - corner) / fitted * whole


def upright_size(height: Side, width: Side, orientation: Orientation) -> Size:
    """Return the size of an image that is turned upright, from its size as it is stored."""
    swap = is_transposed(orientation)
    return tf.where(swap, width, height), tf.where(swap, height, width)


def kept_window(height: Side, width: Side, preprocessing: Preprocessing) -> Window:
    """Return the part of an upright image that the recipe keeps: its central square, or all of it."""
    fraction = preprocessing.crop_fraction
    if fraction is None:
        zero = tf.constant(0, tf.int64)
        return Window(zero, zero, height, width)
    # In integers, because the product with a float fraction can be off by one pixel.
    side = tf.maximum(tf.minimum(height, width) * fraction.numerator // fraction.denominator, 1)
    top, left = (half_of(whole - side, preprocessing) for whole in (height, width))
    return Window(top, left, side, side)


def is_transposed(orientation: Orientation) -> Flag:
    """Return whether turning an image of this orientation upright swaps its height and width."""
    return tf.gather(_IS_TRANSPOSED, orientation - 1)


def to_stored(window: Window, height: Side, width: Side, orientation: Orientation) -> Window:
    """Convert a window of the upright image, of `height` and `width`, to the image as it is stored."""
    top = tf.where(tf.gather(_ROWS_REVERSED, orientation - 1), height - window.top - window.height, window.top)
    left = tf.where(tf.gather(_COLUMNS_REVERSED, orientation - 1), width - window.left - window.width, window.left)
    swap = is_transposed(orientation)
    return Window(
        tf.where(swap, left, top),
        tf.where(swap, top, left),
        tf.where(swap, window.width, window.height),
        tf.where(swap, window.height, window.width),
    )


def turn_upright(pixels: Pixels, orientation: Orientation) -> Pixels:
    """Turn an image upright according to its EXIF orientation."""

    def turn() -> Pixels:
        swap = is_transposed(orientation)
        rows, columns = (tf.gather(axes, orientation - 1) for axes in (_ROWS_REVERSED, _COLUMNS_REVERSED))
        # Rows after transposing are columns before it, and reversing columns is faster.
        reversed_before = tf.reverse(pixels, tf.boolean_mask([1], [swap & rows]))
        transposed = tf.transpose(reversed_before, tf.where(swap, [1, 0, 2], [0, 1, 2]))
        return tf.reverse(transposed, tf.boolean_mask([0, 1], [rows & ~swap, columns]))

    return tf.cond(orientation > 1, turn, lambda: pixels)


def fit(height: Side, width: Side, preprocessing: Preprocessing) -> Window:
    """Return where an image lies in the network's input when it has been resized: in all of it, or in a letterbox.

    With crop `short:`, it is the shorter side that is stated, the longer one is rounded down, as in torchvision's
    `resize`, and the image goes beyond the edges.
    """
    if preprocessing.short_side is not None:
        shorter, side = tf.minimum(height, width), tf.constant(preprocessing.short_side, tf.int64)
        resized = height * side // shorter, width * side // shorter
        top, left = (
            -half_of(part - whole, preprocessing) for part, whole in zip(resized, preprocessing.size, strict=True)
        )
        return Window(top, left, *resized)
    if preprocessing.letterbox_rounding is not None:
        return _letterbox(height, width, preprocessing)
    max_height, max_width = (tf.fill(tf.shape(height), tf.constant(side, tf.int64)) for side in preprocessing.size)
    return Window(tf.zeros_like(height), tf.zeros_like(width), max_height, max_width)


def _letterbox(height: Side, width: Side, preprocessing: Preprocessing) -> Window:
    """Fit an image into the network's input undistorted. Sides are at least 1; see `letterbox_rounding`.

    Sources: down, tf.image.resize_with_pad, which computes in float32, and takes a margin from the side that is not yet
    rounded; even, Ultralytics' LetterBox (ultralytics/data/augment.py), in float64. In the others, the smaller half of
    an odd margin is above and to the left.
    """
    sides, most = (height, width), preprocessing.size
    if preprocessing.letterbox_rounding == "down":
        ratio = tf.maximum(*(tf.cast(side, tf.float64) / whole for side, whole in zip(sides, most, strict=True)))
        # As if divided in float32; TensorFlow would turn that division by a constant into a product.
        exact = [tf.cast(side, tf.float32) / tf.cast(ratio, tf.float32) for side in sides]
        corner = [
            tf.maximum(tf.cast((whole - side) // 2, tf.int64), 0) for whole, side in zip(most, exact, strict=True)
        ]
        return Window(*corner, *(tf.maximum(tf.cast(side, tf.int64), 1) for side in exact))
    if preprocessing.letterbox_rounding == "even":
        zoom = tf.minimum(*(whole / tf.cast(side, tf.float64) for side, whole in zip(sides, most, strict=True)))
        rounded = [tf.cast(tf.round(tf.cast(side, tf.float64) * zoom), tf.int64) for side in sides]
    else:
        is_wide = width * most[0] >= height * most[1]
        whole, side = tf.where(is_wide, most[1], most[0]), tf.where(is_wide, width, height)
        rounded = [(2 * part * tf.cast(whole, tf.int64) + side) // (2 * side) for part in sides]
    fitted = [tf.maximum(part, 1) for part in rounded]
    return Window(*((whole - part) // 2 for whole, part in zip(most, fitted, strict=True)), *fitted)


def margins_before(height: Side, width: Side, size: tuple[int, int]) -> Size:
    """Return the margins, on each side, that give an image the shape of the network's input.

    Source: Keras's ops.image.resize with pad_to_aspect_ratio, in float32. Where a margin is odd, a pixel is left out.
    """
    sides, margins = (height, width), []
    for side, other, whole, other_whole in zip(sides, sides[::-1], size, size[::-1], strict=True):
        padded = tf.cast(tf.cast(other * whole, tf.float32) / tf.cast(other_whole, tf.float32), tf.int64)
        margins.append(tf.maximum(padded - side, 0) // 2)
    return margins[0], margins[1]


def half_of(margin: Side, preprocessing: Preprocessing) -> Side:
    """Return the part of a margin that is above, or to the left of, what is cut out.

    Sources: up, github.com/tensorflow/tpu (models/official/efficientnet/preprocessing.py, _decode_and_center_crop);
    down, Keras's smart_resize and transformers' center_crop; even, torchvision's center_crop.
    """
    half = margin // 2
    rounded = {"up": 1, "down": 0, "even": half % 2}[preprocessing.margin_rounding]
    return half + margin % 2 * rounded


def place_on_canvas(pixels: Tensor, size: Size, corner: Size, colour: tuple[int, int, int]) -> Tensor:
    """Place an image of any dtype, [height, width, 3], on a canvas of one colour, R, G, B of 0..255.

    The `corner` is the distance of the image from the top and from the left of the canvas.
    """
    margins = [
        [before, whole - before - part]
        for before, whole, part in zip(corner, size, tf.unstack(tf.shape(pixels, out_type=tf.int64)[:2]), strict=True)
    ]
    padded = tf.pad(pixels, [*margins, [0, 0]])
    is_covered = tf.pad(tf.ones_like(pixels[..., :1], tf.bool), [*margins, [0, 0]])
    return tf.where(is_covered, padded, tf.cast(colour, pixels.dtype))
