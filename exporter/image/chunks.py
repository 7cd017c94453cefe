"""Reads the headers of PNG and WebP files, which consist of chunks: a name, a length and contents.

Sources: PNG third edition, sections 5.3, 5.6 and 11; RFC 9649, section 2 (WebP), whose files are RIFF files.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from savedmodel_bakery.exporter.image.bytes_ops import read_unsigned, split, substring
from savedmodel_bakery.exporter.tensor_types import Flag, ImageBytes, Integer, Integers, Offset, Side, Text

# Files have a handful of chunks before the image data. The limit bounds the time a hostile file can take.
_MAX_CHUNKS = 1024
# A PNG file has a few texts. Each compressed one takes a decoder up to 8 MB, which has nothing to do with its size.
_COMPRESSED_TEXTS, _MAX_TEXTS = (b"zTXt", b"iTXt"), 64

# Bits of the flags of a VP8X chunk; the first also of the fifth byte of a VP8L chunk.
_HAS_ALPHA, _IS_ANIMATED = 0x10, 0x02
_FLAGS_OFFSET = 20


def read_png_header(data: ImageBytes) -> tuple[Side, Side, Offset, Flag]:
    """Read height, width, offset of the EXIF block and alpha."""
    exif_offset, transparency = _find_chunks(
        data,
        8,
        (b"eXIf", b"tRNS"),
        stop_at=b"IDAT",
        read_chunk=lambda offset: (substring(data, offset + 4, 4), read_unsigned(data, offset, 4)),
        chunk_size=lambda length: 12 + length,  # with a checksum
    )
    texts = tf.add_n([tf.size(split(data, name, _MAX_TEXTS + 1)) - 1 for name in _COMPRESSED_TEXTS])
    # IHDR must come first (PNG, section 5.6). libpng skips other chunks before it; for such a file the size is 0.
    is_usual = tf.cast(tf.equal(substring(data, 12, 4), b"IHDR") & (texts <= _MAX_TEXTS), tf.int64)
    # Bit 2 of the colour type means an alpha channel; tRNS makes a palette, or one colour, transparent.
    has_alpha = tf.equal(read_unsigned(data, 25, 1) & 4, 4) | (transparency > 0)
    height, width = (read_unsigned(data, offset, 4) * is_usual for offset in (20, 16))
    return height, width, exif_offset, has_alpha


def read_webp_header(data: ImageBytes) -> tuple[Side, Side, Offset, Flag]:
    """Read height, width, offset of the EXIF block and alpha."""

    def number(offset: Offset, size: int) -> Integer:
        return read_unsigned(data, offset, size, little_endian=True)

    exif_offset, alpha_chunk, lossless = _find_chunks(
        data,
        12,
        (b"EXIF", b"ALPH", b"VP8L"),
        stop_at=b"",
        read_chunk=lambda offset: (substring(data, offset, 4), number(offset + 4, 4)),
        chunk_size=lambda length: 8 + length + length % 2,
    )
    lossless_bits = number(21, 4)
    # Height and width, as a lossy, a lossless and an extended file store them.
    sides = tf.stack(
        [
            [number(28, 2) % 2**14, number(26, 2) % 2**14],
            [lossless_bits // 2**14 % 2**14 + 1, lossless_bits % 2**14 + 1],
            [number(27, 3) + 1, number(24, 3) + 1],
        ]
    )
    is_variant = tf.equal(substring(data, 12, 4), (b"VP8 ", b"VP8L", b"VP8X"))
    height, width = tf.unstack(tf.reduce_sum(tf.where(is_variant[:, tf.newaxis], sides, tf.zeros_like(sides)), axis=0))
    # As WebPGetFeatures: the alpha bit of a lossless image takes precedence. Animations are always decoded with alpha.
    flags = read_unsigned(data, _FLAGS_OFFSET, 1)
    is_animated = is_variant[2] & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    announces_alpha = is_variant[2] & (tf.equal(flags & _HAS_ALPHA, _HAS_ALPHA) | (alpha_chunk > 0))
    lossless_alpha = tf.equal(read_unsigned(data, lossless + 4, 1) & _HAS_ALPHA, _HAS_ALPHA)
    has_alpha = is_animated | tf.where(lossless > 0, lossless_alpha, announces_alpha)
    return height, width, exif_offset, has_alpha


def set_webp_alpha_flag(data: ImageBytes) -> ImageBytes:
    """Set the alpha flag of an animated WebP file; return other files unchanged.

    TensorFlow takes the number of channels from that flag, but decodes every animation with alpha.
    """
    flags = read_unsigned(data, _FLAGS_OFFSET, 1)
    is_animated = tf.equal(substring(data, 8, 8), b"WEBPVP8X") & tf.equal(flags & _IS_ANIMATED, _IS_ANIMATED)
    new_flags = tf.gather(tf.constant([bytes([value]) for value in range(256)]), flags | _HAS_ALPHA)
    corrected = [
        substring(data, 0, _FLAGS_OFFSET),
        new_flags,
        substring(data, _FLAGS_OFFSET + 1, tf.strings.length(data)),
    ]
    return tf.cond(is_animated, lambda: tf.strings.join(corrected), lambda: data)


def _find_chunks(
    data: ImageBytes,
    start: int,
    names: tuple[bytes, ...],
    *,
    stop_at: bytes,
    read_chunk: Callable[[Offset], tuple[Text, Integer]],
    chunk_size: Callable[[Integer], Integer],
) -> list[Offset]:
    """Find the contents of the first chunk of each name that precedes the chunk `stop_at`."""
    file_size = tf.strings.length(data)

    def has_more(offset: Offset, is_last: Flag, _contents: Integers) -> Flag:
        return (offset < file_size) & ~is_last

    def read_next(offset: Offset, _is_last: Flag, contents: Integers) -> tuple[Offset, Flag, Integers]:
        name, claimed_length = read_chunk(offset)
        # At most to the end of the file, so that the next offset fits into int32.
        length = tf.cast(tf.minimum(claimed_length, tf.cast(file_size - offset, tf.int64)), tf.int32)
        is_first = tf.equal(name, tf.constant(names)) & tf.equal(contents, 0)
        return offset + chunk_size(length), tf.equal(name, stop_at), tf.where(is_first, offset + 8, contents)

    state = (tf.constant(start), tf.constant(False), tf.zeros([len(names)], tf.int32))
    _, _, contents = tf.while_loop(has_more, read_next, state, maximum_iterations=_MAX_CHUNKS)
    offsets: list[Offset] = tf.unstack(contents)
    return offsets
