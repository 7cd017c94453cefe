"""Reads each image of a batch separately: a bad image gets an error and affects no other image, batch or request."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter.image import encodings, framing, pixels
from savedmodel_bakery.exporter.image.header import Header, read_header
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tensor_types import (
    EncodedImage,
    EncodedImages,
    Flag,
    ImageBytes,
    Integer,
    NetworkPixels,
    PixelBatch,
    Rows,
    Size,
    Tensor,
    Text,
    Texts,
)

_UNLIMITED = 2**62

EMPTY = "empty: no bytes were sent"
"""The error of an image without bytes."""


class ReadImages(NamedTuple):
    """Images of a batch."""

    pixels: PixelBatch  # of those that could be read, at the size of the network's input
    sizes: Tensor  # int64 [images, 2], their heights and widths upright, in pixels of the file
    errors: Texts  # of each row that was read, why it could not be; empty if it could
    others: tuple[Tensor, ...] = ()  # what else the network takes for each of them


def read_images(
    images: EncodedImages,
    rows: Rows,
    max_readable: Integer,
    preprocessing: Preprocessing,
    *,
    min_images: int = 0,
    max_side: int = _UNLIMITED,
) -> ReadImages:
    """Read images of a batch, one after the other, until `max_readable` (1 or more) could be read.

    With 1 for `min_images`, returns one blank image, of size 1 by 1, if none can be read. No side of an image can have
    more than `max_side` pixels.
    """
    rows_count = tf.size(rows)
    size = [*preprocessing.size, 3]

    def has_more(index: Integer, readable: Integer, *_arrays: Tensor) -> Flag:
        return (index < rows_count) & (readable < max_readable)

    def read_next(
        index: Integer, readable: Integer, pixels: Tensor, sizes: Tensor, errors: Tensor
    ) -> tuple[Integer, Integer, Tensor, Tensor, Tensor]:
        network_pixels, upright_size, error = _read_image(images[rows[index]], preprocessing, max_side)
        ok = tf.size(network_pixels) > 0
        pixels, sizes = tf.cond(
            ok,
            lambda: (pixels.write(readable, network_pixels), sizes.write(readable, upright_size)),
            lambda: (pixels, sizes),
        )
        return index + 1, readable + tf.cast(ok, tf.int32), pixels, sizes, errors.write(index, error)

    capacity = tf.clip_by_value(rows_count, 1, max_readable)
    state = (
        tf.constant(0),
        tf.constant(0),
        tf.TensorArray(tf.float32, size=capacity, element_shape=size),
        tf.TensorArray(tf.int64, size=capacity, element_shape=[2]),
        tf.TensorArray(tf.string, size=rows_count, element_shape=[]),
    )
    index, readable, pixels, sizes, errors = tf.while_loop(has_more, read_next, state)
    returned = tf.range(tf.maximum(readable, min_images))
    # An element that was not written is zeros.
    return ReadImages(pixels.gather(returned), tf.maximum(sizes.gather(returned), 1), errors.gather(tf.range(index)))


def _read_image(image: EncodedImage, preprocessing: Preprocessing, max_side: int) -> tuple[NetworkPixels, Size, Text]:
    """Return the pixels of an image, empty if it can't be read, its upright size in the file, and why not."""
    data = encodings.decode(image)
    header = read_header(data)
    pixel_count = header.height * header.width
    network_pixels = tf.cond(
        (pixel_count > 0)
        & (pixel_count <= preprocessing.max_pixels)
        & (tf.maximum(header.height, header.width) <= max_side),
        lambda: pixels.read_file(data, header, preprocessing),
        lambda: tf.constant(pixels.NO_NETWORK_PIXELS),
    )
    error = tf.cond(
        tf.size(network_pixels) > 0, lambda: b"", lambda: _describe_error(image, data, header, preprocessing, max_side)
    )
    orientation = pixels.shown_orientation(header, preprocessing)
    return network_pixels, framing.upright_size(header.height, header.width, orientation), error


def _describe_error(
    image: EncodedImage, data: ImageBytes, header: Header, preprocessing: Preprocessing, max_side: int
) -> Text:
    """Return why an image can't be read; `data` is empty if `image` is neither an image file nor base64."""
    sides = tf.strings.as_string(header.width), " by ", tf.strings.as_string(header.height)
    other_format = encodings.other_format(image)  # a short file can be base64 too
    other_format = tf.where(tf.equal(other_format, ""), encodings.other_format(data), other_format)
    return tf.case(
        [
            (tf.equal(image, b""), lambda: tf.constant(EMPTY)),
            (
                tf.not_equal(other_format, ""),
                lambda: tf.strings.join([other_format, ", which TensorFlow cannot decode: convert it to JPEG or PNG"]),
            ),
            (
                tf.equal(data, b""),
                lambda: tf.strings.join(
                    ["neither base64 nor a supported image format: it starts with ", _first_bytes(image)]
                ),
            ),
            (
                tf.equal(header.file_format, encodings.UNKNOWN),
                lambda: tf.strings.join(["base64 of an unsupported file format: it starts with ", _first_bytes(data)]),
            ),
            (
                header.height * header.width > preprocessing.max_pixels,
                lambda: tf.strings.join(
                    ["too large: its header states ", *sides, f" pixels; the maximum is {preprocessing.max_pixels}"]
                ),
            ),
            (
                tf.maximum(header.height, header.width) > max_side,
                lambda: tf.strings.join(
                    ["too large: its header states ", *sides, f" pixels; the longest side can have {max_side}"]
                ),
            ),
        ],
        default=lambda: tf.constant("damaged, truncated or of an unsupported kind: the image file cannot be decoded"),
        exclusive=False,
    )


def _first_bytes(data: Text) -> Text:
    """Return the first 8 bytes in hexadecimal, such as `ff d8 ff e0`."""
    digits = tf.constant([f"{byte:02x}" for byte in range(256)])
    first = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.uint8), tf.int32)
    return tf.strings.reduce_join(tf.gather(digits, first), separator=" ")
