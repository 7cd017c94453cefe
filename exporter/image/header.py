"""What a file's header tells before anything is decoded: how large the picture is, and which way up it was taken.

Nothing here fails, whatever the bytes: what can't be found is 0, or 1 for an orientation.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from exporter.image import spelling

# JPEG, ITU-T T.81, table B.1: markers of frames hold the size; the scan's ends the headers.
_FRAMES = [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF]
_SCAN, _APP1 = 0xDA, 0xE1
_EXIF = b"Exif\0\0"
# TIFF 6.0, section 8: Orientation, a SHORT; some writers use a LONG.
_ORIENTATION_TAG, _SHORT, _LONG = 0x0112, 3, 4
_MAX_TAGS = 512


def read_header(data: Any) -> tuple[Any, Any, Any]:
    """What the header of the file in scalar string `data` claims.

    Sources: ITU-T T.81 B.2.2 (JPEG), PNG 11.2.1, GIF89a section 18, BITMAPINFOHEADER, RFC 9649 section 2 (WebP).

    Returns:
        height and width: pixels, scalar int64, before turning; 0 where they can't be found.
        orientation: EXIF orientation of a JPEG file, scalar int32, 1..8; 1 where there is none to read, and for other
            formats.
    """
    head = _read(data, 0, 30)
    as_it_lies = tf.constant(1)
    png = _number(head[20:24]), _number(head[16:20]), as_it_lies
    gif = _number(head[8:10], little=True), _number(head[6:8], little=True), as_it_lies
    bmp = _signed(_number(head[22:26], little=True)), _signed(_number(head[18:22], little=True)), as_it_lies
    nothing = tf.constant(0, tf.int64), tf.constant(0, tf.int64), as_it_lies
    height, width, orientation = tf.case(
        [
            (spelling.is_jpeg(data), lambda: _read_jpeg_header(data)),
            (tf.equal(head[0], 0x89), lambda: png),
            (tf.equal(head[0], ord("G")), lambda: gif),
            (tf.equal(head[0], ord("B")), lambda: bmp),
            (tf.equal(head[0], ord("R")), lambda: (*_webp_size(head), as_it_lies)),
        ],
        default=lambda: nothing,
    )
    return height, width, orientation


def _read(data: Any, at: Any, count: int) -> Any:
    """Bytes `at` … of scalar string `data`, zeros beyond its end: int64 [count]."""
    start = tf.clip_by_value(at, 0, tf.strings.length(data))
    return tf.cast(tf.io.decode_raw(tf.strings.substr(data, start, count), tf.uint8, fixed_length=count), tf.int64)


def _number(values: Any, *, little: Any = False) -> Any:
    """The unsigned numbers that bytes int64 [..., n] are: int64 [...]."""
    if isinstance(little, bool):
        ordered = values[..., ::-1] if little else values
    else:
        ordered = tf.where(little, values[..., ::-1], values)
    places = tf.constant([256**place for place in reversed(range(values.shape[-1]))], tf.int64)
    return tf.reduce_sum(ordered * places, axis=-1)


def _signed(number: Any) -> Any:
    """The size that a 32-bit number is: BMP's height is negative where rows go from top to bottom."""
    return tf.where(number >= 2**31, 2**32 - number, number)


def _walk_jpeg(data: Any) -> tuple[Any, Any]:
    """Where the EXIF block's and the frame's contents begin: scalar int32, 0 for none."""
    length = tf.strings.length(data)

    def more(at: Any, _exif: Any, frame: Any) -> Any:
        marker = _read(data, at, 2)
        return tf.equal(frame, 0) & (at < length) & tf.equal(marker[0], 0xFF) & tf.not_equal(marker[1], _SCAN)

    def step(at: Any, exif: Any, frame: Any) -> tuple[Any, Any, Any]:
        segment = _read(data, at, 4)
        contents = at + 4
        is_exif = tf.equal(segment[1], _APP1) & tf.equal(_text(data, contents, len(_EXIF)), _EXIF)
        is_frame = tf.reduce_any(tf.equal(segment[1], tf.constant(_FRAMES, tf.int64)))
        # Any number of bytes ff may stand before a marker.
        is_fill = tf.equal(segment[1], 0xFF)
        onward = tf.where(is_fill, tf.constant(1, tf.int64), 2 + tf.maximum(_number(segment[2:4]), 2))
        return (
            at + tf.cast(onward, tf.int32),
            tf.where(is_exif & tf.equal(exif, 0), contents, exif),
            tf.where(is_frame & tf.logical_not(is_fill), contents, frame),
        )

    zero = tf.constant(0)
    _, exif, frame = tf.while_loop(more, step, (tf.constant(2), zero, zero))
    return exif, frame


def _text(data: Any, at: Any, count: int) -> Any:
    return tf.strings.substr(data, tf.clip_by_value(at, 0, tf.strings.length(data)), count)


def _read_jpeg_header(data: Any) -> tuple[Any, Any, Any]:
    exif, frame = _walk_jpeg(data)
    contents = _read(data, frame, 5)
    found = tf.cast(frame > 0, tf.int64)
    orientation = tf.cond(exif > 0, lambda: _tiff_orientation(data, exif + len(_EXIF)), lambda: tf.constant(1))
    return _number(contents[1:3]) * found, _number(contents[3:5]) * found, orientation


def _webp_size(head: Any) -> tuple[Any, Any]:
    fourth = head[15]
    lossy = _number(head[28:30], little=True) % 2**14, _number(head[26:28], little=True) % 2**14
    bits = _number(head[21:25], little=True)
    lossless = bits // 2**14 % 2**14 + 1, bits % 2**14 + 1
    extended = _number(head[27:30], little=True) + 1, _number(head[24:27], little=True) + 1
    height, width = tf.case(
        [(tf.equal(fourth, ord("L")), lambda: lossless), (tf.equal(fourth, ord("X")), lambda: extended)],
        default=lambda: lossy,
    )
    return height, width


def _tiff_orientation(data: Any, tiff: Any) -> Any:
    header = _read(data, tiff, 8)
    little = tf.equal(header[0], ord("I"))
    ordered = tf.equal(header[0], header[1]) & (little | tf.equal(header[0], ord("M")))
    offset = _number(header[4:8], little=little)
    directory = tiff + tf.cast(tf.minimum(offset, tf.cast(tf.strings.length(data), tf.int64)), tf.int32)
    tags = tf.minimum(_number(_read(data, directory, 2), little=little), _MAX_TAGS)
    entries = tf.reshape(_read(data, directory + 2, 12 * _MAX_TAGS), [_MAX_TAGS, 12])[:tags]
    tag, kind = _number(entries[:, 0:2], little=little), _number(entries[:, 2:4], little=little)
    short, long = _number(entries[:, 8:10], little=little), _number(entries[:, 8:12], little=little)
    value = tf.where(tf.equal(kind, _SHORT), short, long)
    is_ours = tf.equal(tag, _ORIENTATION_TAG) & (tf.equal(kind, _SHORT) | tf.equal(kind, _LONG))
    found = tf.boolean_mask(value, is_ours & (value >= 1) & (value <= 8))[:1]
    usable = ordered & (tf.size(found) > 0)
    return tf.cond(usable, lambda: tf.cast(tf.reduce_sum(found), tf.int32), lambda: tf.constant(1))
