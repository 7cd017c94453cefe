"""Decodes what clients send into the bytes of an image file: raw bytes, base64 or a data URI.

Base64 may use either alphabet, with or without padding and line breaks. Raw bytes are recognised by their magic
numbers; base64 text of an image never begins with one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import with_fallback
from savedmodel_bakery.exporter.image.bytes_ops import read_integers, substring
from savedmodel_bakery.exporter.tensor_types import EncodedImage, FileFormat, ImageBytes, Offset, Tensor, Text

# The formats that tf.io.decode_image can decode.
UNKNOWN, JPEG, PNG, GIF, BMP, WEBP = range(6)
# Magic numbers; `.` matches any byte. The letters "BM" alone would match many texts, so the four reserved bytes of a
# BMP header, which are zero, are compared too.
_MAGIC_NUMBERS = (
    (JPEG, b"\xff\xd8\xff"),
    (PNG, b"\x89PNG\r\n\x1a\n"),
    (GIF, b"GIF87a"),
    (GIF, b"GIF89a"),
    (BMP, b"BM....\0\0\0\0"),
    (WEBP, b"RIFF....WEBP"),
)
_OTHER_FORMATS = (
    ("HEIC", b"....ftyphei."),
    ("HEIC", b"....ftyphev."),
    ("HEIF", b"....ftypmif1"),
    ("AVIF", b"....ftypavi."),
    ("TIFF", b"II*\0"),
    ("TIFF", b"MM\0*"),
    ("JPEG XL", b"\0\0\0\x0cJXL "),
    ("JPEG XL", b"\xff\x0a"),
    ("JPEG 2000", b"\0\0\0\x0cjP  "),
)
"""Image formats that TensorFlow cannot decode; `.` matches any byte."""

_LONGEST_MAGIC_NUMBER = 12
_BLOCK_BYTES = 2**20  # of text; converting a block takes up to 11 times its size
_MAX_MEDIA_TYPE_BYTES = 2**16  # of a data URI, with what surrounds it


def detect_format(data: ImageBytes) -> FileFormat:
    """Detect the format of a file by its magic number; UNKNOWN if there is none."""
    formats = [file_format for file_format, _ in _MAGIC_NUMBERS]
    return tf.reduce_max(tf.where(_matches(data, [magic for _, magic in _MAGIC_NUMBERS]), formats, UNKNOWN))


def other_format(data: ImageBytes) -> Text:
    """Return the name of an image format that TensorFlow cannot decode; empty for other data."""
    names = tf.constant([name for name, _ in _OTHER_FORMATS])
    found = tf.boolean_mask(names, _matches(data, [magic for _, magic in _OTHER_FORMATS]))
    return tf.cond(tf.size(found) > 0, lambda: found[0], lambda: "")


def _matches(data: ImageBytes, magic_numbers: Sequence[bytes]) -> Tensor:
    """Return which of the magic numbers a file begins with: bool [magic numbers]."""
    patterns = np.stack([np.frombuffer(magic.ljust(_LONGEST_MAGIC_NUMBER, b"."), np.uint8) for magic in magic_numbers])
    head = read_integers(data, 0, _LONGEST_MAGIC_NUMBER)
    return tf.reduce_all(tf.equal(head, patterns.astype(np.int32)) | (patterns == ord(".")), axis=1)


def decode(encoded: EncodedImage) -> ImageBytes:
    """Return the bytes of the image file; empty if `encoded` is neither an image file nor base64.

    Raw bytes only cost a comparison of their first bytes, and web-safe base64 without whitespace only its decoding.
    Other base64 is converted to that form first.
    """
    return tf.cond(detect_format(encoded) > UNKNOWN, lambda: encoded, lambda: decode_base64(encoded))


def decode_base64(text: Text) -> ImageBytes:
    """Decode base64 in any accepted form, or a data URI; empty if `text` is not valid."""
    data = _decode_web_safe(text)
    return tf.cond(tf.equal(data, b""), lambda: _decode_web_safe(_to_web_safe(text)), lambda: data)


def _decode_web_safe(symbols: Text) -> ImageBytes:
    return with_fallback(tf.io.decode_base64, symbols, fallback=b"")


def _to_web_safe(text: Text) -> Text:
    """Convert to the web-safe alphabet, without data URI prefix, whitespace and padding."""
    starts = tf.range(_base64_start(text), tf.strings.length(text), _BLOCK_BYTES)
    blocks = tf.map_fn(
        lambda start: _web_safe_symbols(substring(text, start, _BLOCK_BYTES)),
        starts,
        fn_output_signature=tf.TensorSpec([], tf.string),
        parallel_iterations=1,
    )
    symbols = tf.strings.reduce_join(blocks)
    size = tf.strings.length(symbols)
    padding = tf.reduce_sum(tf.cast(tf.equal(read_integers(symbols, size - 2, 2), ord("=")), tf.int32))
    return tf.strings.substr(symbols, 0, size - padding)


def _base64_start(text: Text) -> Offset:
    """Return the offset of the base64 of a text, which a data URI has after its first comma.

    A data URI is `data:[<media type>][;base64],<data>` (RFC 2397).
    """
    is_data_uri = tf.equal(tf.strings.lower(tf.strings.substr(text, 0, 5)), b"data:")
    is_comma = tf.equal(read_integers(text, 0, _MAX_MEDIA_TYPE_BYTES), ord(","))
    return tf.where(is_data_uri, tf.argmax(is_comma, output_type=tf.int32) + 1, 0)


def _web_safe_symbols(text: Text) -> Text:
    """Convert to the web-safe alphabet (RFC 4648, section 5), without whitespace.

    Characters that are not base64 symbols are kept, so that decoding rejects them.
    """
    symbols = tf.io.decode_raw(text, tf.uint8)
    symbols = tf.where(tf.equal(symbols, ord("+")), tf.constant(ord("-"), tf.uint8), symbols)
    symbols = tf.where(tf.equal(symbols, ord("/")), tf.constant(ord("_"), tf.uint8), symbols)
    is_visible = symbols > ord(" ")
    return _join_bytes(
        tf.cond(tf.reduce_all(is_visible), lambda: symbols, lambda: tf.boolean_mask(symbols, is_visible))
    )


def _join_bytes(values: Tensor) -> Text:
    """Join bytes uint8 [n] to one string, at the speed of a copy.

    TensorFlow has no operation for this, but a serialized TensorProto ends with its tensor_content: these bytes.
    """
    size = tf.size(values)
    serialized = tf.io.serialize_tensor(values)
    return tf.strings.substr(serialized, tf.strings.length(serialized) - size, size)
