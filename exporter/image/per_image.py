"""Reads each image of a batch separately: a bad image gets an error and affects no other image, batch or request."""

from __future__ import annotations

import tensorflow as tf

from savedmodel_bakery.exporter.image import encodings, pixels
from savedmodel_bakery.exporter.image.header import Header, read_header
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tensor_types import (
    EncodedImage,
    EncodedImages,
    Flag,
    Flags,
    ImageBytes,
    NetworkPixels,
    PixelBatch,
    Text,
    Texts,
)


def read_images(images: EncodedImages, preprocessing: Preprocessing) -> tuple[PixelBatch, Flags, Texts]:
    """Read a batch of images.

    Returns:
        pixels: of `preprocessing.size`; zeros where `ok` is false.
        ok: whether the image could be read.
        error: why it could not; empty where `ok` is true.
    """
    batch, ok, error = tf.map_fn(
        lambda image: _read_image(image, preprocessing),
        images,
        fn_output_signature=(
            tf.TensorSpec([*preprocessing.size, 3], tf.float32),
            tf.TensorSpec([], tf.bool),
            tf.TensorSpec([], tf.string),
        ),
    )
    return batch, ok, error


def _read_image(image: EncodedImage, preprocessing: Preprocessing) -> tuple[NetworkPixels, Flag, Text]:
    data = encodings.decode(image)
    header = read_header(data)
    pixel_count = header.height * header.width
    is_acceptable = (pixel_count > 0) & (pixel_count <= preprocessing.max_pixels)

    def blank() -> tuple[NetworkPixels, Flag]:
        return tf.zeros([*preprocessing.size, 3]), tf.constant(False)

    network_pixels, ok = tf.cond(is_acceptable, lambda: pixels.read_file(data, header, preprocessing), blank)
    return network_pixels, ok, tf.cond(ok, lambda: b"", lambda: _describe_error(image, data, header, preprocessing))


def _describe_error(image: EncodedImage, data: ImageBytes, header: Header, preprocessing: Preprocessing) -> Text:
    """Return why an image can't be read; `data` is empty if `image` is neither an image file nor base64."""
    sides = tf.strings.as_string(header.width), " by ", tf.strings.as_string(header.height)
    return tf.case(
        [
            (tf.equal(image, b""), lambda: tf.constant("empty: no bytes were sent")),
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
        ],
        default=lambda: tf.constant("damaged, truncated or of an unsupported kind: the image file cannot be decoded"),
        exclusive=False,
    )


def _first_bytes(data: Text) -> Text:
    """Return the first 8 bytes in hexadecimal, such as `ff d8 ff e0`."""
    digits = tf.constant([f"{byte:02x}" for byte in range(256)])
    first = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.uint8), tf.int32)
    return tf.strings.reduce_join(tf.gather(digits, first), separator=" ")
