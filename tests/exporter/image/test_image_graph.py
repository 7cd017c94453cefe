"""The image graph, compared with Pillow and NumPy: the pixels of every kind of file, and the errors of bad ones."""

from __future__ import annotations

import base64
import functools
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import png
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.image import header, pixels
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.validation import reference

Read = Callable[..., Any]
Encode = Callable[..., bytes]

HEIGHT, WIDTH = 24, 32

# In levels of 0..255. TensorFlow computes coordinates in float32, about 1e-5 pixels off in a row of 640 pixels.
ATOL = 0.02


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize by the formula of bilinear interpolation without antialiasing: the centre of pixel i is at i + 1/2."""

    def weights(size: int, new_size: int) -> np.ndarray:
        centres = np.clip((np.arange(new_size) + 0.5) * size / new_size - 0.5, 0, size - 1)
        return np.maximum(0, 1 - np.abs(centres[:, np.newaxis] - np.arange(size)))

    rows, columns = weights(picture.shape[0], height), weights(picture.shape[1], width)
    result: np.ndarray = np.einsum("yh,hwc,xw->yxc", rows, picture.astype(float), columns, optimize=True)
    return result


def is_transparent(data: bytes) -> bool:
    """Whether a file has transparent pixels; the fourth byte of a BMP pixel is reserved, not alpha."""
    image = Image.open(io.BytesIO(data))
    return image.format != "BMP" and image.convert("RGBA").getchannel("A").getextrema()[0] < 255


def decode_with_pillow(data: bytes, background: tuple[int, int, int] = (255, 255, 255)) -> np.ndarray:
    """Decode to uint8 [height, width, 3], with transparent pixels composited over a background."""
    image = Image.open(io.BytesIO(data))
    if not is_transparent(data):
        return np.asarray(image.convert("RGB"))
    canvas = Image.new("RGB", image.size, background)
    canvas.paste(image.convert("RGBA"), mask=image.convert("RGBA").getchannel("A"))
    return np.asarray(canvas)


def with_alpha(image: Image.Image) -> Image.Image:
    """Add alpha that decreases from bottom to top."""
    copy = image.copy()
    copy.putalpha(Image.linear_gradient("L").resize(image.size))
    return copy


def with_own_palette(gif: bytes) -> bytes:
    """Move the palette of a GIF file of 64 colours into its frame (GIF89a, sections 18 and 20)."""
    palette, descriptor = gif[13 : 13 + 192], gif.index(b",", 13 + 192)
    screen = gif[:10] + bytes([gif[10] & 0x70]) + gif[11:13]
    return screen + gif[13 + 192 : descriptor + 9] + b"\x85" + palette + gif[descriptor + 10 :]


@functools.cache
def decoder(preprocessing: Preprocessing) -> Any:
    return tf.function(
        lambda data: pixels.decode_file(data, header.read_header(data), preprocessing).pixels,
        input_signature=[tf.TensorSpec([], tf.string)],
        autograph=False,
    )


def decoded(data: bytes, preprocessing: Preprocessing) -> np.ndarray:
    """Decode with the graph to uint8 [height, width, 3], before resizing."""
    result: np.ndarray = decoder(preprocessing)(tf.constant(data)).numpy()
    return result


@pytest.fixture(scope="module")
def thumbnail(rocket: Image.Image) -> Image.Image:
    """A colourful photo of 161 × 107 pixels."""
    return rocket.resize((161, 107))


FILES: dict[str, Callable[[Image.Image, Encode], bytes]] = {
    "JPEG": lambda photo, encode: encode(photo, "JPEG", quality=90),
    "JPEG, all chroma": lambda photo, encode: encode(photo, "JPEG", subsampling=0),
    "JPEG, progressive": lambda photo, encode: encode(photo, "JPEG", progressive=True),
    "JPEG, gray": lambda photo, encode: encode(photo.convert("L"), "JPEG"),
    "JPEG, CMYK": lambda photo, encode: encode(photo.convert("CMYK"), "JPEG"),
    "PNG": lambda photo, encode: encode(photo, "PNG"),
    "PNG, gray": lambda photo, encode: encode(photo.convert("L"), "PNG"),
    "PNG, gray and alpha": lambda photo, encode: encode(with_alpha(photo.convert("L")), "PNG"),
    "PNG, RGBA": lambda photo, encode: encode(with_alpha(photo), "PNG"),
    "PNG, palette": lambda photo, encode: encode(photo.quantize(64), "PNG"),
    "PNG, palette and transparent": lambda photo, encode: encode(photo.quantize(64), "PNG", transparency=3),
    "PNG, 1 bit": lambda photo, encode: encode(photo.convert("1"), "PNG"),
    "PNG, palette and alpha": lambda photo, encode: encode(
        photo.quantize(64), "PNG", transparency=bytes(range(0, 256, 4))
    ),
    "PNG, gray and one transparent": lambda photo, encode: encode(photo.convert("L"), "PNG", transparency=100),
    "PNG, one colour transparent": lambda photo, encode: encode(
        photo, "PNG", transparency=photo.getpixel((photo.width // 2, photo.height // 2))
    ),
    "GIF": lambda photo, encode: encode(photo.quantize(64), "GIF"),
    "GIF, animated": lambda photo, encode: encode(
        photo.quantize(64), "GIF", save_all=True, append_images=[photo.rotate(180).quantize(64)]
    ),
    "GIF, transparent": lambda photo, encode: encode(photo.quantize(64), "GIF", transparency=3),
    "GIF, own palette and transparent": lambda photo, encode: with_own_palette(
        encode(photo.quantize(64), "GIF", transparency=3)
    ),
    "GIF, interlaced": lambda photo, encode: encode(photo.quantize(64), "GIF", interlace=True),
    "GIF, with a comment": lambda photo, encode: encode(photo.quantize(64), "GIF", comment=b"long " * 500),
    "BMP": lambda photo, encode: encode(photo, "BMP"),
    "BMP, gray": lambda photo, encode: encode(photo.convert("L"), "BMP"),
    "BMP, palette": lambda photo, encode: encode(photo.quantize(64), "BMP"),
    "BMP, 32 bit": lambda photo, encode: encode(with_alpha(photo), "BMP"),
    "WebP": lambda photo, encode: encode(photo, "WEBP"),
    "WebP, lossless": lambda photo, encode: encode(photo, "WEBP", lossless=True),
    "WebP, alpha": lambda photo, encode: encode(with_alpha(photo), "WEBP"),
    "WebP, lossless with alpha": lambda photo, encode: encode(with_alpha(photo), "WEBP", lossless=True, exact=True),
    "WebP, extended": lambda photo, encode: encode(photo, "WEBP", icc_profile=b"profile"),
    "WebP, extended, lossless with alpha": lambda photo, encode: encode(
        with_alpha(photo), "WEBP", lossless=True, exact=True, icc_profile=b"profile"
    ),
    **{
        f"WebP, animated{name}": lambda photo, encode, first=first, lossless=lossless: encode(
            first(photo), "WEBP", save_all=True, append_images=[photo.rotate(180)], lossless=lossless
        )
        for name, first, lossless in (
            ("", lambda photo: photo, False),
            (", lossless", lambda photo: photo, True),
            (", alpha", with_alpha, False),
            (", lossless with alpha", with_alpha, True),
        )
    },
}


@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_decoded_pixels_equal_pillows(
    thumbnail: Image.Image, encode: Encode, preprocessing_of: Callable[..., Any], write: Any
) -> None:
    """Bit for bit, before resizing."""
    data = write(thumbnail, encode)
    np.testing.assert_array_equal(decode_with_pillow(data), decoded(data, preprocessing_of()))


@pytest.mark.parametrize("write", FILES.values(), ids=FILES)
def test_only_transparent_pixels_show_the_background(
    thumbnail: Image.Image, encode: Encode, preprocessing_of: Callable[..., Any], write: Any
) -> None:
    data = write(thumbnail, encode)
    colour = (12, 200, 99)
    shown = decode_with_pillow(data, colour)
    assert is_transparent(data) == bool((shown != decode_with_pillow(data)).any())
    np.testing.assert_array_equal(shown, decoded(data, preprocessing_of(background="12,200,99")))


WITH_ALPHA = {name: write for name, write in FILES.items() if "alpha" in name or "transparent" in name}


@pytest.mark.parametrize("name", [*(name for name in FILES if "JPEG" in name), *WITH_ALPHA])
def test_as_tensorflow_and_keras_decode(
    thumbnail: Image.Image, encode: Encode, preprocessing_of: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    """With the fast DCT and without alpha; the reference finds the same pixels."""
    data = FILES[name](thumbnail, encode)
    preprocessing = preprocessing_of(jpeg_dct="fast", alpha="drop")
    pixels = decoded(data, preprocessing)
    (tmp_path / "photo").write_bytes(data)
    np.testing.assert_array_equal(reference.read_upright(tmp_path / "photo", preprocessing), pixels)
    is_webp_with_alpha = data.startswith(b"RIFF") and header.read_header(data).has_alpha
    if not data.startswith((b"GIF", b"BM")) and not is_webp_with_alpha:  # these, TensorFlow refuses or misreads
        np.testing.assert_array_equal(tf.io.decode_image(data, 3, expand_animations=False), pixels)


def test_16_bit_png_keeps_its_upper_8_bits(encode: Encode, preprocessing_of: Callable[..., Any]) -> None:
    """All 65536 levels, compared with the rule itself, because Pillow would clip them at 255."""
    levels = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    data = encode(Image.fromarray(levels), "PNG")
    assert 16 == data[24]  # IHDR's bit depth
    expected = np.repeat((levels >> 8)[..., np.newaxis], 3, axis=2)
    np.testing.assert_array_equal(expected, decoded(data, preprocessing_of()))


@pytest.mark.parametrize("colours", ["gray", "colour", "colour and alpha"])
def test_a_white_level_of_12_bits(preprocessing_of: Callable[..., Any], tmp_path: Path, colours: str) -> None:
    """Compared with the rule itself, and with the reference; photos of 8 bits stay as they are."""
    gray, planes = colours == "gray", {"gray": 1, "colour": 3, "colour and alpha": 4}[colours]
    levels = np.random.default_rng(1).integers(0, 5000, (40, 30, planes)).astype(np.uint16)
    levels[..., 3:] = 2**16 - 1
    with (tmp_path / "deep.png").open("wb") as file:
        writer = png.Writer(30, 40, greyscale=gray, alpha=planes == 4, bitdepth=16)
        writer.write(file, levels.reshape(40, -1).tolist())
    preprocessing = preprocessing_of(white=4095)
    expected = np.round(np.minimum(levels[..., :3] / 4095, 1) * 255) * np.ones(3)
    np.testing.assert_array_equal(expected, decoded((tmp_path / "deep.png").read_bytes(), preprocessing))
    np.testing.assert_array_equal(expected, reference.read_upright(tmp_path / "deep.png", preprocessing))
    Image.fromarray(expected.astype(np.uint8)).save(tmp_path / "flat.png")
    np.testing.assert_array_equal(expected, decoded((tmp_path / "flat.png").read_bytes(), preprocessing))


@pytest.mark.parametrize(
    "write",
    [FILES["JPEG, CMYK"], FILES["JPEG, gray"], FILES["PNG, RGBA"], FILES["BMP, palette"], FILES["WebP"]],
    ids=["JPEG, CMYK", "JPEG, gray", "PNG, RGBA", "BMP, palette", "WebP"],
)
def test_files_are_read_by_the_whole_graph(read: Read, thumbnail: Image.Image, encode: Encode, write: Any) -> None:
    data = write(thumbnail, encode)
    result = read([data, base64.b64encode(data)])
    assert [True, True] == result.ok
    expected = resized(decode_with_pillow(data), HEIGHT, WIDTH)
    for row in result.pixels:
        np.testing.assert_allclose(row, expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["rocket.jpg", "coffee.png", "chelsea.png"])
def test_stretching_a_photo_equals_the_formula(read: Read, photos: dict[str, bytes], name: str) -> None:
    result = read([photos[name]])
    expected = resized(decode_with_pillow(photos[name]), HEIGHT, WIDTH)
    np.testing.assert_allclose(result.pixels[0], expected, rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["rocket.jpg", "coffee.png", "chelsea.png"])
def test_cropping_a_photo_equals_the_formula(read: Read, photos: dict[str, bytes], name: str) -> None:
    picture = decode_with_pillow(photos[name])
    height, width, _ = picture.shape
    side = min(height, width) * 7 // 8
    top, left = (height - side + 1) // 2, (width - side + 1) // 2
    expected = resized(picture[top : top + side, left : left + side], HEIGHT, WIDTH)
    result = read([photos[name]], crop="7/8")
    np.testing.assert_allclose(result.pixels[0], expected, rtol=0, atol=ATOL)


def test_enlarging_equals_the_formula(read: Read, encode: Encode) -> None:
    """Beyond the centres of the outer pixels their values are repeated."""
    small = np.random.default_rng(0).integers(0, 256, (3, 2, 3), np.uint8)
    result = read([encode(Image.fromarray(small), "PNG")])
    np.testing.assert_allclose(result.pixels[0], resized(small, HEIGHT, WIDTH), rtol=0, atol=ATOL)


def test_antialias_averages_omitted_pixels(read: Read, encode: Encode) -> None:
    """Alternating columns of 0 and 255 become gray; without antialias each sample is one of them."""
    stripes = np.zeros((HEIGHT * 9, WIDTH * 9, 3), np.uint8)
    stripes[:, ::2] = 255
    image = encode(Image.fromarray(stripes), "PNG")
    smooth = read([image], antialias=True).pixels[0][2:-2, 2:-2]
    np.testing.assert_allclose(smooth, 127.5, rtol=0, atol=4)
    assert {0.0, 255.0} == set(np.unique(read([image]).pixels))


CROPS = {
    "15/17 of 272 is 240": ((272, 272), "15/17", (16, 16, 240)),
    "odd margin: larger half above and left": ((10, 7), "1/2", (4, 2, 3)),
    "even margin": ((9, 20), "7/8", (1, 7, 7)),
    "rounded down": ((8, 9), "0.99", (1, 1, 7)),
    "whole square": ((5, 8), "1", (0, 2, 5)),
    "1/10 of 30": ((30, 40), "0.1", (14, 19, 3)),
    "at least one pixel": ((3, 3000), "1/4", (1, 1500, 1)),
    "a single pixel": ((1, 1), "7/8", (0, 0, 1)),
}


@pytest.mark.parametrize(("shape", "crop", "expected"), CROPS.values(), ids=CROPS)
def test_crop_is_the_central_square_to_the_pixel(
    preprocessing_of: Callable[..., Preprocessing],
    encode: Encode,
    shape: tuple[int, int],
    crop: str,
    expected: tuple[int, int, int],
) -> None:
    """Top, left and side are computed by hand."""
    top, left, side = expected
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    data = tf.constant(encode(Image.fromarray(picture), "PNG"))
    result = pixels.decode_file(data, header.read_header(data), preprocessing_of(crop=crop)).pixels
    np.testing.assert_array_equal(picture[top : top + side, left : left + side], result)


@pytest.mark.parametrize("size", [(90, 60), (61, 90), (48, 1700)], ids=str)
def test_the_centre_of_a_photo_with_a_shorter_side(
    read: Read, encode: Encode, preprocessing_of: Callable[..., Any], size: tuple[int, int]
) -> None:
    """As torchvision's Resize(56) and CenterCrop: Pillow resizes, an odd margin of 3 or 7 pixels is 2 or 4 above.

    Pillow rounds pixels between rows and columns, and would clip them at 0 and 255.
    """
    photo = Image.fromarray(np.random.default_rng(3).integers(80, 170, (*size[::-1], 3), np.uint8))
    changes = {"size": (49, 48), "crop": "short:56", "resize": "bicubic", "antialias": True}
    width, height = (int(56 * side / min(size)) for side in size)
    resized = np.asarray(photo.resize((width, height), Image.Resampling.BICUBIC), np.float32)
    top, left = round((height - 49) / 2), round((width - 48) / 2)
    (pixels,) = read([encode(photo, "PNG")], **changes).pixels
    np.testing.assert_allclose(resized[top : top + 49, left : left + 48], pixels, rtol=0, atol=1.5)
    np.testing.assert_allclose(reference.fit(photo, preprocessing_of(**changes)), pixels, rtol=0, atol=0.1)


@pytest.mark.parametrize(("crop", "antialias"), [("none", True), ("short:64", True), ("letterbox:padded", False)])
def test_a_low_image_that_becomes_higher(
    read: Read, encode: Encode, preprocessing_of: Callable[..., Any], crop: str, antialias: bool
) -> None:
    """The pixels of the reference; a wide one takes little memory (2.5 GB without `_small_first`)."""
    changes = {"size": (60, 40), "crop": crop, "resize": "bicubic", "antialias": antialias}
    low = Image.fromarray(np.random.default_rng(3).integers(0, 256, (7, 300, 3), np.uint8))
    (pixels,) = read([encode(low, "PNG")], **changes).pixels
    np.testing.assert_allclose(reference.fit(low, preprocessing_of(**changes)), pixels, rtol=0, atol=0.1)
    wide = encode(Image.new("RGB", (900_000, 1)), "PNG")
    Path("/proc/self/clear_refs").write_text("5")  # see proc_pid_clear_refs(5)
    before = peak_mb()
    assert read([wide], **changes).ok == [True]
    assert peak_mb() - before < 200


def peak_mb() -> float:
    [line] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line) / 1000


def test_height_comes_before_width(read: Read, photos: dict[str, bytes]) -> None:
    assert (1, HEIGHT, WIDTH, 3) == read([photos["rocket.jpg"]]).pixels.shape


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1), (2, 2)], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("crop", ["none", "7/8"])
def test_images_of_any_size_are_read(read: Read, encode: Encode, size: tuple[int, int], crop: str) -> None:
    """One colour stays the same colour."""
    colour = (10, 100, 250)
    result = read([encode(Image.new("RGB", size, colour), "PNG")], crop=crop)
    assert [True] == result.ok
    np.testing.assert_allclose(
        result.pixels, np.broadcast_to(np.float32(colour), result.pixels.shape), rtol=0, atol=1e-4
    )


def test_images_of_mixed_sizes_and_formats_are_read_as_if_alone(
    read: Read, photos: dict[str, bytes], thumbnail: Image.Image, encode: Encode
) -> None:
    images = [
        *photos.values(),
        encode(Image.new("L", (1, 3000), 77), "PNG"),
        encode(thumbnail.quantize(16), "GIF"),
        base64.b64encode(encode(thumbnail.resize((50, 70)), "WEBP")),
    ]
    together = read(images)
    assert [True] * len(images) == together.ok
    for row, image in enumerate(images):
        np.testing.assert_array_equal(read([image]).pixels[0], together.pixels[row])


def test_an_empty_batch_gives_empty_outputs(read: Read) -> None:
    result = read([])
    assert (0, HEIGHT, WIDTH, 3) == result.pixels.shape
    assert ([], []) == (result.ok, result.error)


DAMAGED = "damaged, truncated or of an unsupported kind: the image file cannot be decoded"
PHOTOS = {photo.name: photo.read_bytes() for photo in resources.example_photos()}
BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty: no bytes were sent"),
    "not base64": (
        b"not base64!",
        "neither base64 nor a supported image format: it starts with 6e 6f 74 20 62 61 73 65",
    ),
    "bytes beyond ASCII": (
        b"\x00\xff\x00",
        "neither base64 nor a supported image format: it starts with 00 ff 00",
    ),
    "HEIC": (b"\0\0\0\x18ftypheic", "HEIC, which TensorFlow cannot decode: convert it to JPEG or PNG"),
    "AVIF": (b"\0\0\0\x1cftypavif", "AVIF, which TensorFlow cannot decode: convert it to JPEG or PNG"),
    "base64 of TIFF": (b"TU0AKgAAAAA=", "TIFF, which TensorFlow cannot decode: convert it to JPEG or PNG"),
    "whitespace": (b" \n", "neither base64 nor a supported image format: it starts with 20 0a"),
    "base64 of no image": (
        base64.b64encode(b"hello world"),
        "base64 of an unsupported file format: it starts with 68 65 6c 6c 6f 20 77 6f",
    ),
    "data URI of no image": (
        b"data:text/plain;base64," + base64.b64encode(b"%PDF"),
        "base64 of an unsupported file format: it starts with 25 50 44 46",
    ),
    "JPEG cut in half": (PHOTOS["rocket.jpg"][: len(PHOTOS["rocket.jpg"]) // 2], DAMAGED),
    "JPEG without its last byte": (PHOTOS["rocket.jpg"][:-1], DAMAGED),
    "PNG cut in half": (PHOTOS["coffee.png"][: len(PHOTOS["coffee.png"]) // 2], DAMAGED),
    "PNG without its end": (PHOTOS["coffee.png"][:-12], DAMAGED),
    "base64 of a truncated JPEG": (base64.b64encode(PHOTOS["rocket.jpg"][:5000]), DAMAGED),
    "base64 of a truncated PNG": (base64.urlsafe_b64encode(PHOTOS["coffee.png"][:5000]), DAMAGED),
    "truncated base64": (base64.b64encode(PHOTOS["rocket.jpg"])[:5003], DAMAGED),
    "magic of JPEG alone": (b"\xff\xd8\xff", DAMAGED),
    "magic of PNG alone": (b"\x89PNG\r\n\x1a\n", DAMAGED),
    "magic of GIF alone": (b"GIF89a", DAMAGED),
    "magic of BMP alone": (b"BM", DAMAGED),
    "magic of WebP alone": (b"RIFF\x04\x00\x00\x00WEBP", DAMAGED),
    "base64 of magic alone": (b"iVBORw0KGgo=", DAMAGED),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD)
def test_a_bad_image_has_an_error_and_does_not_affect_others(
    read: Read, photos: dict[str, bytes], bad: bytes, message: str
) -> None:
    good = [photos["chelsea.png"], photos["rocket.jpg"]]
    result = read([good[0], bad, good[1]])
    assert [True, False, True] == result.ok
    assert ["", message, ""] == result.error
    for row, image in enumerate(good):
        np.testing.assert_array_equal(read([image]).pixels[0], result.pixels[row])


def test_a_batch_of_only_bad_images_has_errors(read: Read) -> None:
    result = read([bad for bad, _ in BAD.values()])
    assert [False] * len(BAD) == result.ok
    assert [message for _, message in BAD.values()] == result.error


def bmp_with(position: int, values: bytes) -> Callable[[Image.Image, Encode], bytes]:
    """A BMP file of 32 bits per pixel with some bytes of its header changed."""

    def write(photo: Image.Image, encode: Encode) -> bytes:
        data = bytearray(encode(with_alpha(photo), "BMP"))
        data[position : position + len(values)] = values
        return bytes(data)

    return write


UNSUPPORTED_BMP = {
    "BMP, 1 bit": lambda photo, encode: encode(photo.convert("1"), "BMP"),
    "BMP, compressed": bmp_with(30, b"\x01"),
    "BMP, other masks": bmp_with(30, b"\x03"),
    "BMP, header of OS/2": bmp_with(14, b"\x0c"),
    "BMP, pixels in its header": bmp_with(10, bytes(4)),
}


def bmp_of_one_pixel(index: int) -> bytes:
    """A BMP file of one pixel, with a palette of two colours, black and red."""
    header = b"BM" + (66).to_bytes(4, "little") + bytes(4) + (62).to_bytes(4, "little")
    info = b"".join(
        value.to_bytes(size, "little")
        for value, size in ((40, 4), (1, 4), (1, 4), (1, 2), (8, 2), (0, 4), (4, 4), (0, 4), (0, 4), (2, 4), (0, 4))
    )
    return header + info + bytes(4) + b"\x00\x00\xff\x00" + bytes([index, 0, 0, 0])


def test_a_palette_may_have_few_colours(read: Read) -> None:
    result = read([bmp_of_one_pixel(index=1)])
    np.testing.assert_array_equal(np.broadcast_to(np.float32([255, 0, 0]), result.pixels.shape), result.pixels)
    assert not read([bmp_of_one_pixel(index=200)]).pixels.any()  # black, as by Pillow


@pytest.mark.parametrize("write", UNSUPPORTED_BMP.values(), ids=UNSUPPORTED_BMP)
def test_bmp_files_that_tensorflow_would_misread_are_rejected(
    read: Read, thumbnail: Image.Image, encode: Encode, write: Any
) -> None:
    """Wrong pixels would give a wrong label."""
    result = read([write(thumbnail, encode)])
    assert [False] == result.ok
    assert [DAMAGED] == result.error


NORMALISED = {
    "0..255": ("0..255", "RGB", [10.0, 100.0, 250.0]),
    "0..1": ("0..1", "RGB", [10 / 255, 100 / 255, 250 / 255]),
    "BGR reverses the channels": ("0..255", "BGR", [250.0, 100.0, 10.0]),
    "mean and deviation are in the order R, G, B": ("10,90,50:1,2,4", "RGB", [0.0, 5.0, 50.0]),
    "and are reversed with the channels": ("10,90,50:1,2,4", "BGR", [50.0, 5.0, 0.0]),
}


@pytest.mark.parametrize(("scale", "channels", "expected"), NORMALISED.values(), ids=NORMALISED)
def test_normalised_pixels(
    preprocessing_of: Callable[..., Preprocessing], scale: str, channels: str, expected: list[float]
) -> None:
    colour = tf.constant([[[[10.0, 100.0, 250.0]]]])
    result = pixels.normalise(colour, preprocessing_of(scale=scale, channels=channels)).numpy()
    np.testing.assert_allclose(result[0, 0, 0], expected, rtol=1e-6)
