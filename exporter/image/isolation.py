"""Each image on its own: one that can't be used says why, and no other image, batch or request suffers from it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporter.image import header, pixels, spelling
from exporter.recipe import Recipe


def read_images(image: Any, recipe: Recipe) -> tuple[Any, Any, Any]:
    """Read a batch of image files in any spelling.

    Args:
        image: string [batch].
        recipe: how to crop and resize.

    Returns:
        pixels: float32 [batch, *recipe.size, 3], 0..255 in R, G, B; zeros where `ok` is false.
        ok: bool [batch].
        error: string [batch], empty where `ok` is true.
    """
    found, ok, error = tf.map_fn(
        lambda text: _read_image(text, recipe),
        image,
        fn_output_signature=(
            tf.TensorSpec([*recipe.size, 3], tf.float32),
            tf.TensorSpec([], tf.bool),
            tf.TensorSpec([], tf.string),
        ),
    )
    return found, ok, error


def _read_image(text: Any, recipe: Recipe) -> tuple[Any, Any, Any]:
    def read(decode_text: Any) -> Any:
        def attempt(text: Any) -> tuple[Any, Any]:
            return pixels.fit(pixels.decode_file(decode_text(text), recipe), recipe), True

        # A failing operation would end the whole run; inside a dataset it only ends this element.
        return tf.data.Dataset.from_tensors(text).map(attempt).ignore_errors()

    blank = tf.data.Dataset.from_tensors((tf.zeros([*recipe.size, 3]), False))
    # The spelling nearly all callers use costs no more than its decoding; the general one is tried where that fails.
    attempts = read(spelling.decode_clean).concatenate(read(spelling.decode_any)).concatenate(blank)
    found, ok = attempts.take(1).get_single_element()
    return found, ok, tf.cond(ok, lambda: tf.constant(b""), lambda: explain(text, recipe))


def explain(text: Any, recipe: Recipe) -> Any:
    """Why the image in scalar string `text` can't be used: scalar string."""
    return tf.case(
        [
            (tf.equal(text, b""), lambda: tf.constant("empty: no bytes were sent")),
            (spelling.is_image(text), lambda: _explain_file(text, recipe)),
            (spelling.is_base64(text), lambda: _explain_decoded(text, recipe)),
        ],
        default=lambda: tf.strings.join(
            ["neither base64 nor an image file we know: it begins with ", _first_bytes(text)]
        ),
        exclusive=False,
    )


def _explain_decoded(text: Any, recipe: Recipe) -> Any:
    data = tf.io.decode_base64(spelling.to_web_safe(text))
    return tf.cond(
        spelling.is_image(data),
        lambda: _explain_file(data, recipe),
        lambda: tf.strings.join(["base64, but of no image file we know: it begins with ", _first_bytes(data)]),
    )


def _explain_file(data: Any, recipe: Recipe) -> Any:
    height, width, _ = header.read_header(data)
    sides = tf.strings.as_string(width), " by ", tf.strings.as_string(height)
    return tf.cond(
        height * width <= recipe.max_pixels,
        lambda: tf.constant("damaged, cut off or of an unusual kind: the image file cannot be decoded"),
        lambda: tf.strings.join(
            ["too large: its header says ", *sides, f" pixels; allowed are {recipe.max_pixels} in all"]
        ),
    )


def _first_bytes(data: Any) -> Any:
    """The first 8 bytes in hexadecimal, as `ff d8 ff e0`."""
    digits = tf.constant([f"{byte:02x}" for byte in range(256)])
    first = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.uint8), tf.int32)
    return tf.strings.reduce_join(tf.gather(digits, first), separator=" ")
