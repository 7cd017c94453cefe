"""Spellings of an image file: raw bytes, base64 of either alphabet, padded or not, with line breaks, or a data URI.

Raw bytes are told by their magic numbers, none of which is the beginning of a base64 text of an image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read
from savedmodel_bakery.exporter.image.fallback import attempt

# Formats that tf.io.decode_image knows.
NO_IMAGE, JPEG, PNG, GIF, BMP, WEBP = range(6)
# How files of each begin; `.` is any byte. Two letters alone would take many a text for a BMP file; four bytes of its
# header are reserved, and zero.
_BEGINNINGS = (
    (JPEG, b"\xff\xd8\xff"),
    (PNG, b"\x89PNG\r\n\x1a\n"),
    (GIF, b"GIF87a"),
    (GIF, b"GIF89a"),
    (BMP, b"BM....\0\0\0\0"),
    (WEBP, b"RIFF....WEBP"),
)
_LONGEST = 12


def kind_of(data: Any) -> Any:
    """Which of the formats the file in scalar string `data` begins as: scalar int32."""
    kinds = [kind for kind, _ in _BEGINNINGS]
    wanted = np.stack([np.frombuffer(begins.ljust(_LONGEST, b"."), np.uint8) for _, begins in _BEGINNINGS])
    head = read(data, 0, _LONGEST)
    is_begun = tf.reduce_all(tf.equal(head, wanted.astype(np.int32)) | (wanted == ord(".")), axis=1)
    return tf.reduce_max(tf.where(is_begun, kinds, NO_IMAGE))


def decode(text: Any) -> Any:
    """The file that scalar string `text` spells, scalar string; empty if it is neither an image file nor base64.

    Raw bytes cost no more than a look at their beginning, and web-safe base64 without white space no more than its
    decoding; other spellings are made that first.
    """
    return tf.cond(kind_of(text) > NO_IMAGE, lambda: text, lambda: decode_base64(text))


def decode_base64(text: Any) -> Any:
    """The file in scalar string `text`, which is base64 of any spelling; empty if it isn't."""
    file = _decode_web_safe(text)
    return tf.cond(tf.equal(file, b""), lambda: _decode_web_safe(_web_safe(text)), lambda: file)


def _decode_web_safe(symbols: Any) -> Any:
    return attempt(tf.io.decode_base64, symbols, otherwise=b"")


def _web_safe(text: Any) -> Any:
    """A text of any spelling in the web-safe alphabet, without data URI, white space and padding."""
    symbols = _as_string(_symbols(text, tf.io.decode_raw(text, tf.uint8)))
    size = tf.strings.length(symbols)
    padding = tf.reduce_sum(tf.cast(tf.equal(read(symbols, size - 2, 2), ord("=")), tf.int32))
    return tf.strings.substr(symbols, 0, size - padding)


def _symbols(text: Any, octets: Any) -> Any:
    """Bytes uint8 [n] of a text in the web-safe alphabet (RFC 4648, section 5), without data URI and white space.

    What is no symbol of base64 is left in.
    """
    is_data_uri = tf.equal(tf.strings.lower(tf.strings.substr(text, 0, 5)), b"data:")
    symbols = tf.cond(is_data_uri, lambda: _after_comma(octets), lambda: octets)
    symbols = tf.where(tf.equal(symbols, ord("+")), tf.constant(ord("-"), tf.uint8), symbols)
    symbols = tf.where(tf.equal(symbols, ord("/")), tf.constant(ord("_"), tf.uint8), symbols)
    is_visible = symbols > ord(" ")
    return tf.cond(tf.reduce_all(is_visible), lambda: symbols, lambda: tf.boolean_mask(symbols, is_visible))


def _after_comma(symbols: Any) -> Any:
    """What follows the first comma: a data URI is `data:[<media type>][;base64],<data>` (RFC 2397)."""
    commas = tf.where(tf.equal(symbols, ord(",")))[:1, 0]
    return symbols[tf.cast(tf.reduce_sum(commas), tf.int32) + 1 :]


def _as_string(values: Any) -> Any:
    """The bytes uint8 [n] as one scalar string, at the speed of a copy.

    There is no operation for that, but a serialized TensorProto ends with its tensor_content, which is these bytes.
    """
    size = tf.size(values)
    serialized = tf.io.serialize_tensor(values)
    return tf.strings.substr(serialized, tf.strings.length(serialized) - size, size)
