"""Each image on its own: one that can't be used says why, and no other image, batch or request suffers from it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.image import encodings as spelling
from savedmodel_bakery.exporter.image import header, pixels
from savedmodel_bakery.exporter.image.header import Header
from savedmodel_bakery.exporter.recipe import Preprocessing


def read_images(image: Any, preprocessing: Preprocessing) -> tuple[Any, Any, Any]:
    """Read a batch of image files in any spelling.

    Args:
        image: string [batch].
        preprocessing: how to crop and resize.

    Returns:
        pixels: float32 [batch, *preprocessing.size, 3], 0..255 in R, G, B; zeros where `ok` is false.
        ok: bool [batch].
        error: string [batch], empty where `ok` is true.
    """
    found, ok, error = tf.map_fn(
        lambda text: _read_image(text, preprocessing),
        image,
        fn_output_signature=(
            tf.TensorSpec([*preprocessing.size, 3], tf.float32),
            tf.TensorSpec([], tf.bool),
            tf.TensorSpec([], tf.string),
        ),
    )
    return found, ok, error


def _read_image(text: Any, preprocessing: Preprocessing) -> tuple[Any, Any, Any]:
    data = spelling.decode(text)
    claims = header.read_header(data)
    claimed = claims.height * claims.width
    usable = (claimed > 0) & (claimed <= preprocessing.max_pixels)

    def blank() -> tuple[Any, Any]:
        return tf.zeros([*preprocessing.size, 3]), tf.constant(False)

    found, ok = tf.cond(usable, lambda: pixels.read_file(data, claims, preprocessing), blank)
    return found, ok, tf.cond(ok, lambda: b"", lambda: _explain(text, data, claims, preprocessing))


def _explain(text: Any, data: Any, claims: Header, preprocessing: Preprocessing) -> Any:
    """Why an image can't be used: scalar string.

    Args:
        text: what was sent.
        data: the file it spells, empty where it spells none.
        claims: what the file's header says.
        preprocessing: how many pixels are allowed.
    """
    sides = tf.strings.as_string(claims.width), " by ", tf.strings.as_string(claims.height)
    return tf.case(
        [
            (tf.equal(text, b""), lambda: tf.constant("empty: no bytes were sent")),
            (
                tf.equal(data, b""),
                lambda: tf.strings.join(
                    ["neither base64 nor an image file we know: it begins with ", _first_bytes(text)]
                ),
            ),
            (
                tf.equal(claims.kind, spelling.NO_IMAGE),
                lambda: tf.strings.join(["base64, but of no image file we know: it begins with ", _first_bytes(data)]),
            ),
            (
                claims.height * claims.width > preprocessing.max_pixels,
                lambda: tf.strings.join(
                    ["too large: its header says ", *sides, f" pixels; allowed are {preprocessing.max_pixels} in all"]
                ),
            ),
        ],
        default=lambda: tf.constant("damaged, cut off or of an unusual kind: the image file cannot be decoded"),
        exclusive=False,
    )


def _first_bytes(data: Any) -> Any:
    """The first 8 bytes in hexadecimal, as `ff d8 ff e0`."""
    digits = tf.constant([f"{byte:02x}" for byte in range(256)])
    first = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.uint8), tf.int32)
    return tf.strings.reduce_join(tf.gather(digits, first), separator=" ")
