"""The rows of docs/how-to/keras-model.md give the pixels of the functions that they name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps
from training_code import SIZE, options_of, write_photos

from savedmodel_bakery.exporter.sources import read_preprocessing

ROUNDING = 1.01  # Pillow's, to whole levels
EXACT = 0.02
KERAS = "keras.utils.image_dataset_from_directory(…, image_size=…)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_photos(folder)
    return folder


def dataset(folder: Path, size: tuple[int, int], **arguments: Any) -> list[np.ndarray]:
    files = keras.utils.image_dataset_from_directory(
        folder, labels=None, image_size=size, batch_size=None, shuffle=False, verbose=False, **arguments
    )
    return [image.numpy() for image in files]


def each(prepare: Callable[[Path], Any]) -> Callable[[Path, tuple[int, int]], list[np.ndarray]]:
    return lambda folder, _: [np.asarray(prepare(path), np.float32) for path in sorted(folder.iterdir())]


def decoded(path: Path, **arguments: Any) -> tf.Tensor:
    return tf.io.decode_image(path.read_bytes(), channels=3, expand_animations=False, **arguments)


def levels(path: Path) -> tf.Tensor:
    return tf.cast(decoded(path), tf.float32)


def opened(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def upright(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        return ImageOps.exif_transpose(picture).convert("RGB")


def pillow(filter_: Image.Resampling, read: Callable[[Path], Image.Image] = opened) -> Any:
    return each(lambda path: read(path).resize(SIZE[::-1], filter_))


def resized_and_cropped(path: Path) -> Image.Image:
    """As torchvision's Resize(64) and CenterCrop((56, 40))."""
    picture = opened(path)
    sides = [int(64 * side / min(picture.size)) for side in picture.size]
    left, top = (round((side - kept) / 2) for side, kept in zip(sides, SIZE[::-1], strict=True))
    return picture.resize(sides, Image.Resampling.BILINEAR).crop((left, top, left + SIZE[1], top + SIZE[0]))


FROM_TF, FROM_PILLOW = "`tf.io.decode_image(…)`", '`Image.open(…).convert("RGB")`'
FUNCTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any], float, Any]] = {
    "Keras's dataset": ((KERAS,), {}, EXACT, dataset),
    "Keras's dataset, cropped": (
        (KERAS, "the same with `crop_to_aspect_ratio"),
        {"size": 40},
        EXACT,
        lambda folder, size: dataset(folder, size, crop_to_aspect_ratio=True),
    ),
    "Keras's dataset, padded": (
        (KERAS, "the same with `pad_to_aspect_ratio"),
        {},
        EXACT,
        lambda folder, size: dataset(folder, size, pad_to_aspect_ratio=True),
    ),
    "resize_with_pad": (
        ("resize_with_pad", FROM_TF),
        {},
        EXACT,
        each(lambda path: tf.image.resize_with_pad(decoded(path), *SIZE)),
    ),
    "Resizing": (
        ("`keras.layers.Resizing(height, width)`", FROM_TF),
        {},
        EXACT,
        each(lambda path: keras.layers.Resizing(*SIZE)(levels(path))),
    ),
    "Resizing, cropped": (
        ("Resizing(…, crop_to_aspect_ratio", FROM_TF),
        {"size": 40},
        EXACT,
        each(lambda path: keras.layers.Resizing(40, 40, crop_to_aspect_ratio=True)(levels(path))),
    ),
    "Resizing, padded": (
        ("Resizing(…, pad_to_aspect_ratio", FROM_TF),
        {"padding": "1,1,1"},
        EXACT,
        each(lambda path: keras.layers.Resizing(*SIZE, pad_to_aspect_ratio=True, fill_value=1)(levels(path))),
    ),
    "load_img": (
        ("load_img",),
        {},
        EXACT,
        each(lambda path: keras.utils.img_to_array(keras.utils.load_img(path, target_size=SIZE))),
    ),
    "tf.image.resize": (
        ("`tf.image.resize(image, size)`", FROM_TF),
        {},
        EXACT,
        each(lambda path: tf.image.resize(decoded(path), SIZE)),
    ),
    "tf.image.resize, bicubic": (
        ('`tf.image.resize(image, size, method="bicubic"', FROM_TF),
        {},
        EXACT,
        each(lambda path: tf.image.resize(decoded(path), SIZE, method="bicubic", antialias=True)),
    ),
    "Pillow": (("Image.Resampling.BILINEAR", FROM_PILLOW), {}, ROUNDING, pillow(Image.Resampling.BILINEAR)),
    "Pillow, upright": (
        ("Image.Resampling.BILINEAR", FROM_PILLOW),
        {"orientation": "exif"},
        ROUNDING,
        pillow(Image.Resampling.BILINEAR, upright),
    ),
    "torchvision": (
        ("CenterCrop", FROM_PILLOW),
        {"size": SIZE, "crop": "short:64"},
        ROUNDING,
        each(resized_and_cropped),
    ),
}


@pytest.mark.parametrize(
    ("function", "row"),
    [
        ("image_dataset_from_directory", KERAS),
        ("load_img", "load_img"),
        ("tf.image.resize", "`tf.image.resize(image, size)`"),
    ],
)
def test_the_presets_of_like_state_the_same(clone: Path, function: str, row: str) -> None:
    page = (clone / "docs" / "how-to" / "keras-model.md").read_text()
    assert options_of(page, row) == read_preprocessing(function)


@pytest.mark.parametrize(("rows", "changes", "atol", "function"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_rows_of_the_page(
    clone: Path,
    folder: Path,
    read: Callable[..., Any],
    rows: tuple[str, ...],
    changes: dict[str, Any],
    atol: float,
    function: Any,
) -> None:
    page = (clone / "docs" / "how-to" / "keras-model.md").read_text()
    values = {"size": SIZE, **options_of(page, *rows), **changes}
    size = (values["size"],) * 2 if isinstance(values["size"], int) else values["size"]
    pixels = read([path.read_bytes() for path in sorted(folder.iterdir())], **values).pixels
    for path, expected, row in zip(sorted(folder.iterdir()), function(folder, size), pixels, strict=True):
        np.testing.assert_allclose(expected, row, rtol=0, atol=atol, err_msg=path.name)
