"""Images as inputs of a model."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import ExifTags, Image

from savedmodel_bakery.answers.images import encode_png, list_images, read_image

GRADIENT = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)


def pixels_of(content: bytes | np.ndarray) -> np.ndarray:
    assert isinstance(content, bytes)
    assert content.startswith(b"\x89PNG")
    return np.array(Image.open(io.BytesIO(content)))


def test_an_image_is_bytes_a_path_or_a_binary_file(tmp_path: Path) -> None:
    photo = tmp_path / "horse.jpg"
    photo.write_bytes(b"horse")
    with photo.open("rb") as file:
        assert [b"horse"] * 5 == [
            read_image(image) for image in (b"horse", photo, str(photo), file, io.BytesIO(b"horse"))
        ]


MODES = ["1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"]


@pytest.mark.parametrize("mode", MODES)
def test_a_pillow_image_of_8_bits_becomes_a_png_file(mode: str) -> None:
    """It loses nothing more than by Pillow's own conversion, and keeps its transparency."""
    image = Image.fromarray(GRADIENT).convert("RGBA")
    image.putpixel((0, 0), (10, 20, 30, 0))
    if between := {"PA": "P", "La": "LA", "LAB": "RGB"}.get(mode):
        image = image.convert(between)
    image = image.convert(mode)
    shown = Image.open(io.BytesIO(read_image(image))).convert("RGBA")
    expected = image.convert("LA") if mode == "La" else image  # which Pillow converts to nothing else
    np.testing.assert_array_equal(np.asarray(expected.convert("RGBA")), np.asarray(shown))


def test_a_pillow_image_of_mode_i_with_bytes_stays_as_it_looks() -> None:
    gray = Image.linear_gradient("L")
    np.testing.assert_array_equal(gray, Image.open(io.BytesIO(read_image(gray.convert("I")))))


def test_damaged_exif_data_of_a_pillow_image_are_ignored() -> None:
    image = Image.linear_gradient("L")
    image.info["exif"] = b"Exif\0\0no tiff"
    assert (256, 256) == Image.open(io.BytesIO(read_image(image))).size


@pytest.mark.parametrize("mode", ["I;16", "I;16L", "I;16B", "I"])
def test_a_pillow_image_of_16_bits_keeps_them(mode: str) -> None:
    """Also one of mode I, as Pillow opens other files of 16 bits."""
    levels = np.array([[0, 255, 256], [1000, 40_000, 65_535]])
    dtype = {"I;16": "<u2", "I;16L": "<u2", "I;16B": ">u2", "I": "i4"}[mode]
    image = Image.frombytes(mode, (3, 2), levels.astype(dtype).tobytes())
    np.testing.assert_array_equal(levels, pixels_of(read_image(image)))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.new("F", (2, 2), 0.5), "a Pillow image of mode F; must have integers"),
        (Image.new("I", (0, 2)), "a Pillow image of 0 by 2 pixels; must have pixels"),
        (Image.new("I", (2, 2), -1), "a Pillow image of mode I with values -1 to -1; must be 0 to 65535"),
        (Image.new("I", (2, 2), 70_000), "a Pillow image of mode I with values 70000 to 70000; must be 0 to 65535"),
    ],
    ids=["floats", "without pixels", "negative", "more than 16 bits"],
)
def test_a_pillow_image_without_a_known_range_is_refused(image: Image.Image, message: str) -> None:
    with pytest.raises(ValueError, match=f"^invalid image: {message}"):
        read_image(image)


def test_a_pillow_image_is_sent_upright() -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate by 90 degrees clockwise
    Image.fromarray(GRADIENT).save(file, "PNG", exif=exif)
    np.testing.assert_array_equal(np.rot90(GRADIENT, -1), pixels_of(read_image(Image.open(file))))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1)])
def test_a_gray_array_has_the_same_level_in_all_colours(shape: tuple[int, ...]) -> None:
    gray = np.arange(6, dtype=np.uint8).reshape(shape)
    np.testing.assert_array_equal(np.stack([gray.reshape(2, 3)] * 3, axis=-1), read_image(gray))


class Converts:
    """As tensors of TensorFlow and PyTorch do."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return GRADIENT


def test_what_converts_to_an_array_is_an_image() -> None:
    np.testing.assert_array_equal(GRADIENT, read_image(Converts()))


BATCH = np.stack([GRADIENT, GRADIENT])


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        pytest.param([b"a", "b"], [b"a", "b"], id="list"),
        pytest.param((path for path in (Path("a"), Path("b"))), [Path("a"), Path("b")], id="generator"),
        pytest.param({"a.jpg": 1}.keys(), ["a.jpg"], id="keys"),
        pytest.param(np.array(["a.jpg", "b.jpg"], object), ["a.jpg", "b.jpg"], id="array of paths"),
        pytest.param(BATCH, [*BATCH], id="array of images"),
        pytest.param(BATCH[..., :1], [*BATCH[..., :1]], id="array of gray images"),
        pytest.param(BATCH[:0], [], id="array without images"),
        pytest.param("photos", None, id="path"),
        pytest.param(Path("photos"), None, id="Path"),
        pytest.param(b"photo", None, id="bytes"),
        pytest.param(io.BytesIO(b"photo"), None, id="file"),
        pytest.param(Image.new("L", (2, 2)), None, id="Pillow image"),
        pytest.param(GRADIENT, None, id="array"),
        pytest.param(GRADIENT[..., 0], None, id="gray array"),
        pytest.param(7, None, id="number"),
        pytest.param({"a.jpg": 1}, None, id="dict"),
    ],
)
def test_a_batch_is_an_iterable_that_is_not_an_image(images: object, expected: list[object] | None) -> None:
    listed = list_images(images)
    assert (expected is None) == (listed is None)
    assert all(np.array_equal(one, other) for one, other in zip(expected or [], listed or [], strict=True))


def test_an_array_as_png_has_the_same_pixels() -> None:
    np.testing.assert_array_equal(GRADIENT, pixels_of(encode_png(GRADIENT)))
    np.testing.assert_array_equal(GRADIENT[:, ::-1], pixels_of(encode_png(GRADIENT[:, ::-1])))


@pytest.mark.parametrize(
    ("file_format", "shape"), [("HEIF", (20, 32, 3)), ("AVIF", (32, 20, 3)), ("TIFF", (32, 20, 3))]
)
def test_photos_that_tensorflow_cannot_decode_are_converted(
    file_format: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Upright, as PNG files. (pillow-heif does not save the orientation.) What can't be converted stays as it is."""
    pillow_heif.register_heif_opener()
    photo = Image.fromarray(np.full((20, 32, 3), (200, 90, 30), np.uint8))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    file = tmp_path / "photo"
    photo.save(file, file_format, exif=exif, quality=100)
    for image in (file, file.read_bytes(), io.BytesIO(file.read_bytes())):
        pixels = pixels_of(read_image(image))
        assert shape == pixels.shape
        assert np.abs(pixels.astype(int) - (200, 90, 30)).max() <= 6
    damaged = file.read_bytes()[:60]
    assert damaged == read_image(damaged)


def test_a_tiff_file_of_16_bits_keeps_them(tmp_path: Path) -> None:
    levels = np.array([[0, 256], [40_000, 65_535]], np.uint16)
    Image.fromarray(levels).save(tmp_path / "deep.tif")
    np.testing.assert_array_equal(levels, pixels_of(read_image(tmp_path / "deep.tif")))
