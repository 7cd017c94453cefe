"""Decodes the first frame of a GIF file (GIF89a specification, sections 15 to 27).

TensorFlow's decoder reads all frames, of any size, before it returns the first. It shows transparent pixels black,
misplaces a frame that is smaller than the canvas, and misreads an extension without blocks. So it is given a file that
contains the first frame alone, without extensions.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import graph_function
from savedmodel_bakery.exporter.image import framing
from savedmodel_bakery.exporter.image.bytes_ops import read_integers, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Integer, Offset, Pixels, Size, Tensor

_EXTENSION, _IMAGE, _GRAPHIC_CONTROL = 0x21, 0x2C, 0xF9
_SCREEN_BYTES, _IMAGE_BYTES = 13, 10
# A run of sub-blocks of equal length is one step; nearly all programs write full sub-blocks except the last.
_MAX_STEPS = 1024
_MAX_RUN_BYTES = 2**20


class _Frame(NamedTuple):
    """The position of the first frame in the file."""

    image: Offset  # its image descriptor
    control: Offset  # the graphic control extension before it
    end: Offset  # after its last sub-block


def read_size(data: ImageBytes) -> Size:
    """Read the size of the canvas, enlarged if the first frame exceeds it; 0 if there is no complete frame."""
    return _canvas_size(data, _find_frame(data))


def decode(data: ImageBytes, background: tuple[int, int, int]) -> Pixels:
    """Decode the first frame on a canvas of `background`; the operation fails if the frame can't be decoded."""
    frame = _find_frame(data)
    opaque = _replace_transparent(data, frame, background)
    screen = substring(opaque, 0, _SCREEN_BYTES + _palette_bytes(read_integers(data, 10, 1)[0]))
    # With the frame's position set to 0, 0 the decoder doesn't misplace it.
    rest = substring(opaque, frame.image + 5, frame.end - frame.image - 5)
    single_frame = tf.strings.join([screen, b",\0\0\0\0", rest, b";"])
    pixels = tf.ensure_shape(tf.io.decode_image(single_frame, channels=3, expand_animations=False), [None, None, 3])
    left, top = tf.unstack(tf.cast(read_integers(data, frame.image + 1, 2, tf.uint16, little_endian=True), tf.int64))
    height, width = _canvas_size(data, frame)
    fills_canvas = tf.reduce_all(tf.equal(tf.shape(pixels, out_type=tf.int64)[:2], [height, width]))
    return tf.cond(
        fills_canvas,
        lambda: pixels,
        lambda: framing.place_on_canvas(pixels, (height, width), (top, left), background),
    )


def _walk_blocks(data: ImageBytes) -> _Frame:
    file_bytes = tf.reshape(tf.io.decode_raw(data, tf.uint8), [-1])
    file_size = tf.size(file_bytes)

    def byte_at(offset: Offset) -> Integer:
        return tf.cast(file_bytes[tf.minimum(offset, file_size - 1)], tf.int32)

    def has_more(offset: Offset, _in_sub_blocks: Flag, _image: Offset, _control: Offset, end: Offset) -> Flag:
        return tf.equal(end, 0) & (offset < file_size)

    def read_next(
        offset: Offset, in_sub_blocks: Flag, image: Offset, control: Offset, end: Offset
    ) -> tuple[Tensor, ...]:
        first = byte_at(offset)
        # The length bytes of sub-blocks of the same length; elsewhere, the step leaves the first byte only.
        lengths = file_bytes[offset : offset + _MAX_RUN_BYTES : tf.where(in_sub_blocks, first + 1, _MAX_RUN_BYTES)]
        same = tf.reshape(tf.equal(lengths, file_bytes[offset]), [-1])
        run = tf.where(tf.reduce_all(same), tf.size(same), tf.argmin(tf.cast(same, tf.int8), output_type=tf.int32))
        is_terminator = in_sub_blocks & tf.equal(first, 0)
        is_image = ~in_sub_blocks & tf.equal(first, _IMAGE)
        is_extension = ~in_sub_blocks & tf.equal(first, _EXTENSION)
        is_control = is_extension & tf.equal(byte_at(offset + 1), _GRAPHIC_CONTROL) & tf.equal(byte_at(offset + 2), 4)
        # The descriptor and its colour table are followed by one byte, the LZW code size.
        image_bytes = _IMAGE_BYTES + _palette_bytes(byte_at(offset + 9)) + 1
        block_bytes = tf.where(is_image, image_bytes, tf.where(is_extension, 2, file_size))
        step = tf.where(is_terminator, 1, tf.where(in_sub_blocks, run * (first + 1), block_bytes))
        return (
            offset + step,
            tf.where(in_sub_blocks, ~is_terminator, is_image | is_extension),
            tf.where(is_image, offset, image),
            tf.where(is_control, offset, control),
            tf.where(is_terminator & (image > 0), offset + 1, end),
        )

    zero = tf.constant(0)
    start = _SCREEN_BYTES + _palette_bytes(byte_at(tf.constant(10)))
    state = (start, tf.constant(False), zero, zero, zero)
    _, _, image, control, end = tf.while_loop(has_more, read_next, state, maximum_iterations=_MAX_STEPS)
    return _Frame(image, control, end)


# Traced once for its two uses, the size and the pixels.
_find_frame = graph_function(_walk_blocks, input_signature=[tf.TensorSpec([], tf.string)])


def _palette_bytes(packed: Integer) -> Integer:
    """Return the size of the colour table that the packed field of a screen or image descriptor announces."""
    return tf.where(packed >= 0x80, 3 * tf.bitwise.left_shift(2, packed & 7), 0)


def _canvas_size(data: ImageBytes, frame: _Frame) -> Size:
    screen = read_integers(data, 6, 2, tf.uint16, little_endian=True)  # width, height
    left, top, width, height = tf.unstack(read_integers(data, frame.image + 1, 4, tf.uint16, little_endian=True))
    canvas = tf.maximum(screen, tf.stack([left + width, top + height]))
    width, height = tf.unstack(tf.cast(tf.where(frame.end > 0, canvas, 0), tf.int64))
    return height, width


def _replace_transparent(data: ImageBytes, frame: _Frame, background: tuple[int, int, int]) -> ImageBytes:
    """Replace the transparent colour, if there is one, by `background` in the colour table."""
    control, image_packed = read_integers(data, frame.control, 7), read_integers(data, frame.image + 9, 1)[0]
    has_own_palette = image_packed >= 0x80
    packed = tf.where(has_own_palette, image_packed, read_integers(data, 10, 1)[0])
    index = control[6]
    is_used = (frame.control > 0) & tf.equal(control[3] & 1, 1) & (3 * index < _palette_bytes(packed))
    colour = tf.where(has_own_palette, frame.image + _IMAGE_BYTES, _SCREEN_BYTES) + 3 * index

    def replaced() -> ImageBytes:
        after = substring(data, colour + 3, tf.strings.length(data))
        return tf.strings.join([substring(data, 0, colour), bytes(background), after])

    return tf.cond(is_used, replaced, lambda: data)
