"""Letterboxes, GIF canvases and fast decoding, compared with arithmetic and Pillow."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sampled_jpeg
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.exporter.image import framing, header, pixels
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.tasks.task import placement_of

Read = Callable[..., Any]
Encode = Callable[..., bytes]
PreprocessingOf = Callable[..., Preprocessing]


def read_file(data: bytes, preprocessing: Preprocessing) -> np.ndarray:
    file = tf.constant(data)
    result: np.ndarray = pixels.read_file(file, header.read_header(file), preprocessing).numpy()
    return result


# Size of the image; height, width, top and left in the network's input of 24 × 32 pixels, computed by hand.
LETTERBOXES = {
    "the same aspect ratio": ((48, 64), (24, 32, 0, 0)),
    "wide": ((100, 400), (8, 32, 8, 0)),
    "wide, odd margin: smaller half above": ((90, 320), (9, 32, 7, 0)),
    "tall": ((400, 100), (24, 6, 0, 13)),
    "half a pixel is rounded up": ((48, 15), (24, 8, 0, 12)),
    "less than half is rounded down": ((480, 149), (24, 7, 0, 12)),
    "panorama": ((20, 6400), (1, 32, 11, 0)),
    "one column": ((3000, 1), (24, 1, 0, 15)),
    "one pixel": ((1, 1), (24, 24, 0, 4)),
    "enlarged": ((3, 2), (24, 16, 0, 8)),
}


@pytest.mark.parametrize(("shape", "placement"), LETTERBOXES.values(), ids=LETTERBOXES)
def test_a_letterbox_contains_the_whole_image_undistorted(
    read: Read, encode: Encode, shape: tuple[int, int], placement: tuple[int, int, int, int]
) -> None:
    """The inside equals Pillow's resize to that size; the outside is the padding, to the pixel."""
    height, width, top, left = placement
    ramp = np.linspace(0, 255, shape[0] * shape[1] * 3).reshape(*shape, 3).astype(np.uint8)
    pixels = read([encode(Image.fromarray(ramp), "PNG")], crop="letterbox", padding="1,2,3", antialias=True).pixels[0]
    inside = np.zeros(pixels.shape[:2], bool)
    inside[top : top + height, left : left + width] = True
    outside = pixels[~inside]
    np.testing.assert_array_equal(np.broadcast_to(np.float32([1, 2, 3]), outside.shape), outside)
    expected = np.stack(
        [
            np.asarray(
                Image.fromarray(ramp[..., channel].astype(np.float32)).resize(
                    (width, height), Image.Resampling.BILINEAR
                )
            )
            for channel in range(3)
        ],
        axis=-1,
    )
    np.testing.assert_allclose(pixels[inside].reshape(height, width, 3), expected, rtol=0, atol=0.02)


ODD_SIZES = [
    (768, 580),
    (290, 56),
    (86, 34),
    (720, 1281),
    (721, 1280),
    (149, 480),
    (1, 900),
    (900, 7),
    (224, 224),
    (5, 3),
]


def ultralytics(height: int, width: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Ultralytics' LetterBox, as its documentation states it: height, width, top and left."""
    zoom = min(size[0] / height, size[1] / width)
    fitted = max(round(height * zoom), 1), max(round(width * zoom), 1)
    top, left = (round((whole - side) / 2 - 0.1) for whole, side in zip(size, fitted, strict=True))
    return *fitted, top, left


def tensorflow(height: int, width: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Where tf.image.resize_with_pad puts a white image: height, width, top and left."""
    covered = tf.image.resize_with_pad(tf.ones([height, width, 1]), *size).numpy()[..., 0] > 0
    (rows, columns) = (covered.any(axis=axis).nonzero()[0] for axis in (1, 0))
    return len(rows), len(columns), rows[0], columns[0]


@pytest.mark.parametrize("size", [(224, 224), (640, 640), (240, 320)], ids=str)
@pytest.mark.parametrize(("crop", "known"), [("letterbox:even", ultralytics), ("letterbox:down", tensorflow)])
def test_other_letterboxes_round_as_the_training_does(
    preprocessing_of: PreprocessingOf, crop: str, known: Callable[..., tuple[int, ...]], size: tuple[int, int]
) -> None:
    preprocessing = preprocessing_of(crop=crop, size=size)
    sizes = [each for each in ODD_SIZES if crop == "letterbox:even" or min(each) > max(each) / min(size)]
    window = tf.function(framing.place)(tf.constant(sizes, tf.int64), preprocessing).window
    placed = [placement_of(each, preprocessing) for each in sizes]
    expected = [known(*each, size) for each in sizes]
    assert expected == [(*each.fitted, *each.corner) for each in placed]
    assert expected == list(zip(window.height, window.width, window.top, window.left, strict=True))


def test_padding_is_black_and_background_white_by_default(preprocessing_of: PreprocessingOf, encode: Encode) -> None:
    clear = encode(Image.new("RGBA", (10, 10), (9, 9, 9, 0)), "PNG")
    pixels = read_file(clear, preprocessing_of(crop="letterbox"))
    assert [0.0, 0.0, 0.0] == pixels[0, 0].tolist()
    assert [255.0, 255.0, 255.0] == pixels[12, 16].tolist()


def gif(*, canvas: tuple[int, int], frame: tuple[int, int, int, int]) -> bytes:
    """A GIF file of gray levels with one frame: width and height of the canvas; left, top, width and height."""
    left, top, width, height = frame
    levels = Image.fromarray((np.arange(width * height) % 250 + 1).astype(np.uint8).reshape(height, width))
    file = io.BytesIO()
    levels.save(file, "GIF")
    data = bytearray(file.getvalue())
    descriptor = data.index(b",\0\0\0\0" + struct.pack("<HH", width, height))
    data[descriptor + 1 : descriptor + 5] = struct.pack("<HH", left, top)
    data[6:10] = struct.pack("<HH", *canvas)
    return bytes(data)


GIF_FRAMES = {
    "in the middle": ((40, 30), (10, 5, 20, 12), (40, 30)),
    "in a corner": ((40, 30), (0, 0, 20, 12), (40, 30)),
    "in the other corner": ((40, 30), (20, 18, 20, 12), (40, 30)),
    "beyond the edge: the canvas grows": ((15, 30), (10, 5, 20, 12), (30, 30)),
    "on an empty canvas": ((0, 0), (1, 2, 20, 12), (21, 14)),
    "one pixel": ((9, 9), (4, 4, 1, 1), (9, 9)),
}


@pytest.mark.parametrize(("canvas", "frame", "size"), GIF_FRAMES.values(), ids=GIF_FRAMES)
def test_a_small_gif_frame_is_placed_on_its_canvas(
    preprocessing_of: PreprocessingOf, canvas: tuple[int, int], frame: tuple[int, int, int, int], size: tuple[int, int]
) -> None:
    """It is surrounded by the background."""
    left, top, width, height = frame
    expected = np.full((size[1], size[0], 3), (7, 8, 9), np.uint8)
    levels = (np.arange(width * height) % 250 + 1).astype(np.uint8).reshape(height, width, 1)
    expected[top : top + height, left : left + width] = levels
    data = tf.constant(gif(canvas=canvas, frame=frame))
    decoded = pixels.decode_file(data, header.read_header(data), preprocessing_of(background="7,8,9"))
    np.testing.assert_array_equal(expected, decoded.pixels.numpy())


# Size of a photo, and the ratio by which it may be decoded smaller.
RATIOS = {
    "too small": ((47, 64), 1),
    "twice as large": ((48, 64), 1),
    "slightly less than four times": ((95, 640), 1),
    "four times": ((96, 128), 2),
    "eight times": ((192, 256), 4),
    "sixteen times": ((384, 512), 8),
    "much larger": ((3000, 4000), 8),
    "the smaller ratio decides": ((4000, 130), 2),
}


@pytest.mark.parametrize(("shape", "ratio"), RATIOS.values(), ids=RATIOS)
def test_fast_decoding_leaves_at_least_twice_the_size_of_the_input(
    preprocessing_of: PreprocessingOf, encode: Encode, shape: tuple[int, int], ratio: int
) -> None:
    photo = tf.constant(encode(Image.new("RGB", (shape[1], shape[0]), (10, 100, 200)), "JPEG"))
    photo_header = header.read_header(photo)
    fast = pixels.decode_file(photo, photo_header, preprocessing_of(decode="fast")).pixels
    assert tuple(-(-side // ratio) for side in shape) == tuple(fast.shape[:2])
    assert (*shape, 3) == pixels.decode_file(photo, photo_header, preprocessing_of()).pixels.shape


WINDOWS = {
    "whole image": ((0, 0, 80, 120), 8, (0, 0, 10, 15)),
    "edges on the grid": ((8, 16, 40, 64), 4, (2, 4, 10, 16)),
    "edges rounded": ((5, 6, 40, 40), 4, (1, 2, 10, 10)),
    "unchanged": ((5, 7, 11, 13), 1, (5, 7, 11, 13)),
}


@pytest.mark.parametrize(("window", "ratio", "expected"), WINDOWS.values(), ids=WINDOWS)
def test_a_window_of_a_smaller_image(window: tuple[int, ...], ratio: int, expected: tuple[int, ...]) -> None:
    scaled = framing.Window(*(tf.constant(edge, tf.int64) for edge in window)).scaled_down(ratio)
    assert expected == tuple(int(edge) for edge in scaled)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("crop", ["7/8", "letterbox"])
def test_fast_decoding_changes_little(
    preprocessing_of: PreprocessingOf, rocket: Image.Image, encode: Encode, orientation: int, crop: str
) -> None:
    """On a photo of 1920 by 1281 pixels, with an antialiased resize, which averages the omitted detail anyway."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = encode(rocket.resize((1920, 1281), Image.Resampling.LANCZOS), "JPEG", quality=92, exif=exif)
    exact, fast = (
        read_file(photo, preprocessing_of(crop=crop, antialias=True, decode=decode)) for decode in ("exact", "fast")
    )
    difference = np.abs(exact - fast)
    assert 0 < difference.mean() < 0.5
    assert difference.max() < 8


def test_fast_decoding_does_not_change_other_formats_and_small_photos(
    preprocessing_of: PreprocessingOf, rocket: Image.Image, encode: Encode
) -> None:
    images = [encode(rocket, "PNG"), encode(rocket.resize((90, 60)), "JPEG"), encode(rocket, "WEBP")]
    for image in images:
        np.testing.assert_array_equal(
            *(read_file(image, preprocessing_of(decode=decode)) for decode in ("exact", "fast"))
        )


def smaller_by_pillow(photo: bytes, ratio: int, side: int) -> np.ndarray:
    """Decode a photo at a smaller size with libjpeg, and cut out its central square, of `side` pixels at full size."""
    with Image.open(io.BytesIO(photo)) as opened:
        width, height = opened.size
        opened.draft("RGB", (width // ratio, height // ratio))
        smaller = np.asarray(opened)
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    top, bottom, left, right = (int(edge / ratio + 0.5) for edge in (top, top + side, left, left + side))
    return smaller[top:bottom, left:right]


def decoded_fast(preprocessing_of: PreprocessingOf, photo: bytes) -> np.ndarray:
    """Decode the central square of 7/8 of the shorter side, for an input of 30 × 30 pixels."""
    preprocessing = preprocessing_of(crop="7/8", size=(30, 30), decode="fast")
    decoded: np.ndarray = pixels.decode_file(
        tf.constant(photo), header.read_header(photo), preprocessing
    ).pixels.numpy()
    return decoded


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, -1)])
@pytest.mark.parametrize("options", [{"subsampling": "4:4:4"}, {"subsampling": "4:2:0", "progressive": True}])
@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_fast_decoding_equals_pillows_crop_of_a_smaller_image(
    preprocessing_of: PreprocessingOf,
    rocket: Image.Image,
    encode: Encode,
    ratio: int,
    options: Any,
    orientation: int,
    turns: int,
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    photo = encode(rocket.resize((ratio * 161, ratio * 104)), "JPEG", quality=92, exif=exif, **options)
    expected = np.rot90(smaller_by_pillow(photo, ratio, ratio * 91), turns)
    np.testing.assert_array_equal(expected, decoded_fast(preprocessing_of, photo))


# Sampling factors of Y; those of Cb and Cr are 1 × 1.
FACTORS = {"4:4:4": (1, 1), "4:2:2": (2, 1), "4:4:0": (1, 2), "4:1:1": (4, 1), "4 by 2": (4, 2), "2 by 4": (2, 4)}


@pytest.mark.parametrize("factors", FACTORS.values(), ids=FACTORS)
@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_fast_decoding_of_any_sampling(preprocessing_of: PreprocessingOf, ratio: int, factors: tuple[int, int]) -> None:
    """With an odd margin, where some decoders return uninitialised memory if they skip columns."""
    photo = sampled_jpeg.encode([factors, (1, 1), (1, 1)], ratio * 161 + 3, ratio * 104 + 1)
    side = (ratio * 104 + 1) * 7 // 8
    np.testing.assert_array_equal(smaller_by_pillow(photo, ratio, side), decoded_fast(preprocessing_of, photo))


def test_fast_decoding_does_not_read_rows_below_the_window(
    preprocessing_of: PreprocessingOf, rocket: Image.Image, encode: Encode
) -> None:
    photo = encode(rocket.resize((640, 640)), "JPEG")
    truncated = photo[: -len(photo) // 32]
    complete, partial = (read_file(data, preprocessing_of(crop="7/8", decode="fast")) for data in (photo, truncated))
    assert partial.any()
    np.testing.assert_array_equal(complete, partial)
    assert not read_file(truncated, preprocessing_of(crop="7/8")).any()
