"""Task image: the picture of a network, at its size or at the photo's, in the graph and with NumPy."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import BakeError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Task

RecipeOf = Callable[..., Recipe]
STATED = {"task": "image", "size": "24x32", "labels": None, "outputs": None, "output_range": "0..1"}


def task_of(recipe_of: RecipeOf, shape: tuple[int, ...] = (24, 32, 3), **values: Any) -> Task:
    return choose_task(recipe_of(**STATED | values), {"picture": (None, *shape)}, ())


def answer(task: Task, picture: np.ndarray, size: tuple[int, int]) -> Answers:
    signature = task.signatures()["serving_default"]
    (files,) = signature.compute({"picture": tf.constant(picture[np.newaxis])}, tf.constant([size], tf.int64))
    return {"serving_default": {"png_bytes": files.numpy()[0]}}


def levels_of(answers: Answers) -> np.ndarray:
    return tf.io.decode_png(answers["serving_default"]["png_bytes"], dtype=tf.uint16).numpy()


def smooth(height: int, width: int, channels: int) -> np.ndarray:
    y, x, c = np.meshgrid(np.linspace(0, 3, height), np.linspace(0, 2, width), np.arange(channels), indexing="ij")
    return (0.5 + 0.6 * np.sin(y + x + c)).astype(np.float32)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("bits", ["8", "16"])
def test_values_of_a_range_are_levels(recipe_of: RecipeOf, channels: int, bits: str) -> None:
    """Those beyond are black or white."""
    task = task_of(recipe_of, (24, 32, channels), output_range="-1..3", output_bits=bits)
    picture = smooth(24, 32, channels) * 5 - 1
    answers = answer(task, picture, (100, 50))
    white = 255 if bits == "8" else 65535
    expected = ((picture + 1) / 4 * white).clip(0, white).round()
    # decode_png repeats the 8 bits
    np.testing.assert_allclose(expected, levels_of(answers) / (257 if bits == "8" else 1), atol=1)
    assert task.compare(answers, NetworkResult({"picture": picture}, (100, 50)), task.tolerance).is_within
    wrong = NetworkResult({"picture": picture + 0.1}, (100, 50))
    assert not task.compare(answers, wrong, task.tolerance).is_within


def test_a_network_on_bgr_returns_bgr(recipe_of: RecipeOf) -> None:
    task = task_of(recipe_of, channels="BGR")
    picture = smooth(24, 32, 3).clip(0, 1)
    answers = answer(task, picture, (24, 32))
    np.testing.assert_allclose(255 * picture[..., ::-1], levels_of(answers) / 257, atol=0.51)
    assert task.compare(answers, NetworkResult({"picture": picture}, (24, 32)), task.tolerance).is_within


@pytest.mark.parametrize("crop", ["none", "letterbox", "letterbox:down"])
@pytest.mark.parametrize("size", [(48, 64), (7, 5), (100, 33), (3, 200), (1, 1)])
@pytest.mark.parametrize("shape", [(24, 32, 3), (96, 128, 1)], ids=str)
def test_a_picture_of_the_size_of_the_photo(
    recipe_of: RecipeOf,
    crop: str,
    size: tuple[int, int],
    shape: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Computed in bands of a few rows."""
    monkeypatch.setattr(resampling, "_BAND_VALUES", 500)
    task = task_of(recipe_of, shape, crop=crop, output_size="photo")
    picture = smooth(*shape)
    answers = answer(task, picture, size)
    with Image.open(io.BytesIO(answers["serving_default"]["png_bytes"])) as shown:
        assert size == (shown.height, shown.width)
    comparison = task.compare(answers, NetworkResult({"picture": picture}, size), task.tolerance)
    assert comparison.difference < 0.003
    if crop == "none":
        expected = (255 * tf.image.resize(picture, size).numpy().clip(0, 1)).round()
        np.testing.assert_allclose(expected, levels_of(answers) / 257, atol=1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"output_range": None}, "task image needs --output-range"),
        ({"output_range": "1..0"}, "must be two numbers with .. between them"),
        ({"output_bits": "12"}, "must be 8 or 16"),
        ({"crop": "7/8", "output_size": "photo"}, "invalid output_size 'photo': with crop '7/8' there is a picture"),
    ],
)
def test_what_does_not_fit_is_explained(recipe_of: RecipeOf, values: dict[str, Any], message: str) -> None:
    with pytest.raises(BakeError, match=message):
        task_of(recipe_of, **values)
