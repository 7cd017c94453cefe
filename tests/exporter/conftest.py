"""Fixtures of the exporter's tests: real photos, and the image graph."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from savedmodel_bakery.errors import names_options
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.recipe import Preprocessing, Recipe

RECIPE = {
    "model": "tiny",
    "labels": "names.txt",
    "size": (24, 32),
    "crop": "none",
    "resize": "bilinear",
    "antialias": False,
    "scale": "0..1",
    "channels": "RGB",
    "outputs": "probabilities",
}


class ReadImages(NamedTuple):
    """Pixels of the images that could be read, whether each could, and why not.

    float32 [readable, height, width, 3], bool [batch], string [batch].
    """

    pixels: np.ndarray
    ok: list[bool]
    error: list[str]


@pytest.fixture(autouse=True)
def errors_name_options() -> Iterator[None]:
    """The texts of errors are those of the command line."""
    default = names_options.set(True)
    yield
    names_options.reset(default)


@pytest.fixture(scope="session")
def recipe_of() -> Callable[..., Recipe]:
    """Make a complete recipe; keywords change it."""

    def recipe_of(**changes: Any) -> Recipe:
        return Recipe.from_values({**RECIPE, **changes})

    return recipe_of


@pytest.fixture(scope="session")
def preprocessing_of(recipe_of: Callable[..., Recipe]) -> Callable[..., Preprocessing]:
    """Make the preprocessing of a complete recipe; keywords change it."""
    return lambda **changes: recipe_of(**changes).preprocessing


@pytest.fixture(scope="session")
def read(recipe_of: Callable[..., Recipe]) -> Callable[..., ReadImages]:
    """Read a batch of images with the image graph; keywords change the recipe.

    A graph takes a second to trace, so with keywords the same functions run eagerly.
    """
    import tensorflow as tf

    from savedmodel_bakery.exporter.image.per_image import read_images

    def read_eagerly(images: Any, **changes: Any) -> Any:
        return read_images(images, tf.range(tf.size(images)), tf.size(images), recipe_of(**changes).preprocessing)

    traced = tf.function(read_eagerly, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)

    def read(images: list[bytes], **changes: Any) -> ReadImages:
        pixels, _, errors, _ = (read_eagerly if changes else traced)(tf.constant(images, tf.string), **changes)
        ok = [error == b"" for error in errors.numpy()]
        return ReadImages(pixels.numpy()[: sum(ok)], ok, [error.decode() for error in errors.numpy()])

    return read


@pytest.fixture(scope="session")
def photos() -> dict[str, bytes]:
    """The example photos by name: two PNG files and one JPEG file."""
    return {photo.name: photo.read_bytes() for photo in resources.example_photos()}


@pytest.fixture(scope="session")
def rocket(photos: dict[str, bytes]) -> Image.Image:
    """A colourful photo of 640 × 427 pixels."""
    return Image.open(io.BytesIO(photos["rocket.jpg"])).convert("RGB")


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """Encode a Pillow image as a file of a format."""

    def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
        file = io.BytesIO()
        image.save(file, file_format, **options)
        return file.getvalue()

    return encode
