"""The first frame of a GIF file, cut out as a file of its own, which is all that TensorFlow's decoder is shown.

That decoder reads every frame there is before it takes the first, whatever their sizes; what is transparent comes
out black, and a frame that is smaller than the canvas displaced.

Source: the GIF89a specification, sections 15 to 27.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.image.bytes_ops import read, text

_EXTENSION, _IMAGE, _GRAPHIC_CONTROL = 0x21, 0x2C, 0xF9
_SCREEN_BYTES, _IMAGE_BYTES = 13, 10
# Sub-blocks of one length in a row are one step; nearly all writers fill all but the last.
_MAX_STEPS = 1024
_MAX_RUN_BYTES = 2**20


class _Frame(NamedTuple):
    """The first frame's place in the file, scalar int32 in bytes; 0 for none.

    Attributes:
        image: where its descriptor begins.
        control: where the graphic control extension before it begins.
        end: where its last sub-block has ended.
    """

    image: Any
    control: Any
    end: Any


def read_size(data: Any) -> tuple[Any, Any]:
    """Height and width of the canvas, made larger where the first frame doesn't fit; scalar int64, 0 where unknown."""
    return _size(data, _find_frame(data))


def decode(data: Any, background: tuple[int, int, int]) -> Any:
    """Pixels uint8 [height, width, 3] of the first frame on a canvas of `background`; fails if it can't be decoded."""
    frame = _find_frame(data)
    # Moved to the upper left corner, where the decoder leaves it as it is.
    rest = text(data, frame.image + 5, frame.end - frame.image - 5)
    moved = [text(data, 0, frame.image + 1), b"\0\0\0\0", rest, b";"]
    alone = _show_through(tf.strings.join(moved), frame, background)
    pixels = tf.ensure_shape(tf.io.decode_image(alone, channels=3, expand_animations=False), [None, None, 3])
    left, top = _corner(data, frame)
    height, width = _size(data, frame)
    whole = tf.reduce_all(tf.equal(tf.shape(pixels, out_type=tf.int64)[:2], [height, width]))
    return tf.cond(whole, lambda: pixels, lambda: framing.place(pixels, (height, width), (top, left), background))


def _walk(data: Any) -> _Frame:
    octets = tf.reshape(tf.io.decode_raw(data, tf.uint8), [-1])
    length = tf.size(octets)

    def at(place: Any) -> Any:
        return tf.cast(octets[tf.minimum(place, length - 1)], tf.int32)

    def more(place: Any, _inside: Any, _image: Any, _control: Any, end: Any) -> Any:
        return tf.equal(end, 0) & (place < length)

    def step(place: Any, inside: Any, image: Any, control: Any, end: Any) -> tuple[Any, ...]:
        first = at(place)
        lengths = octets[place : place + _MAX_RUN_BYTES : tf.where(inside, first + 1, _MAX_RUN_BYTES)]
        same = tf.reshape(tf.equal(lengths, octets[place]), [-1])
        run = tf.where(tf.reduce_all(same), tf.size(same), tf.argmin(tf.cast(same, tf.int8), output_type=tf.int32))
        is_last = inside & tf.equal(first, 0)
        is_image = ~inside & tf.equal(first, _IMAGE)
        is_extension = ~inside & tf.equal(first, _EXTENSION)
        is_control = is_extension & tf.equal(at(place + 1), _GRAPHIC_CONTROL)
        # Behind the descriptor and its colours stands one byte, the size of codes.
        image_bytes = _IMAGE_BYTES + _palette_bytes(at(place + 9)) + 1
        outside = tf.where(is_image, image_bytes, tf.where(is_extension, 2, length))
        onward = tf.where(is_last, 1, tf.where(inside, run * (first + 1), outside))
        return (
            place + onward,
            tf.where(inside, ~is_last, is_image | is_extension),
            tf.where(is_image, place, image),
            tf.where(is_control, place, control),
            tf.where(is_last & (image > 0), place + 1, end),
        )

    zero = tf.constant(0)
    start = _SCREEN_BYTES + _palette_bytes(at(tf.constant(10)))
    state = (start, tf.constant(False), zero, zero, zero)
    _, _, image, control, end = tf.while_loop(more, step, state, maximum_iterations=_MAX_STEPS)
    return _Frame(image, control, end)


# Traced once, for the size and for the pixels.
_find_frame = tf.function(_walk, input_signature=[tf.TensorSpec([], tf.string)], autograph=False)


def _palette_bytes(packed: Any) -> Any:
    """The size of the colour table that the packed fields int32 of a screen or image descriptor announce."""
    return tf.where(packed >= 0x80, 3 * tf.bitwise.left_shift(2, packed & 7), 0)


def _size(data: Any, frame: _Frame) -> tuple[Any, Any]:
    # Of the screen and of the image: width and height.
    screen = read(data, 6, 2, tf.uint16, little=True)
    left, top, width, height = tf.unstack(read(data, frame.image + 1, 4, tf.uint16, little=True))
    whole = tf.maximum(screen, tf.stack([left + width, top + height]))
    width, height = tf.unstack(tf.cast(tf.where(frame.end > 0, whole, 0), tf.int64))
    return height, width


def _corner(data: Any, frame: _Frame) -> tuple[Any, Any]:
    """Left and top of the frame on the canvas, scalar int64."""
    left, top = tf.unstack(tf.cast(read(data, frame.image + 1, 2, tf.uint16, little=True), tf.int64))
    return left, top


def _show_through(data: Any, frame: _Frame, background: tuple[int, int, int]) -> Any:
    """The file with the colour that stands for transparent made `background`."""
    control, of_image = read(data, frame.control, 7), read(data, frame.image + 9, 1)[0]
    own = of_image >= 0x80
    packed = tf.where(own, of_image, read(data, 10, 1)[0])
    index = control[6]
    is_used = (frame.control > 0) & tf.equal(control[3] & 1, 1) & (3 * index < _palette_bytes(packed))
    colour = tf.where(own, frame.image + _IMAGE_BYTES, _SCREEN_BYTES) + 3 * index

    def shown() -> Any:
        # No longer transparent, as the decoder makes what is black.
        opaque = _replace(data, frame.control + 3, b"\0")
        return _replace(opaque, colour, bytes(background))

    return tf.cond(is_used, shown, lambda: data)


def _replace(data: Any, at: Any, new: bytes) -> Any:
    return tf.strings.join([text(data, 0, at), new, text(data, at + len(new), tf.strings.length(data))])
