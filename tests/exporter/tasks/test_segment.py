"""Task segment: maps of the size of the photo, in the graph and with NumPy."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks import resampling
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Task

RecipeOf = Callable[..., Recipe]
NAMES = ("sky", "sea", "sand")
SIZES = [(24, 32), (48, 64), (7, 5), (1, 1), (100, 33), (3, 200)]


def task_of(recipe_of: RecipeOf, network_map: np.ndarray, names: tuple[str, ...] = NAMES, **values: Any) -> Task:
    recipe = recipe_of(**{"task": "segment", "size": "24x32", "outputs": "logits"} | values)
    return choose_task(recipe, {"map": (None, *network_map.shape)}, names)


def answer(task: Task, network_map: np.ndarray, size: tuple[int, int]) -> Answers:
    signature = task.signatures()["serving_default"]
    values = signature.compute({"map": tf.constant(network_map[np.newaxis])}, tf.constant([size], tf.int64))
    return {"serving_default": {alias: v.numpy()[0] for alias, v in zip(signature.columns, values, strict=True)}}


def map_of(answers: Answers) -> np.ndarray:
    with Image.open(io.BytesIO(answers["serving_default"]["map_png_bytes"])) as picture:
        assert "L" == picture.mode
        return np.asarray(picture)


def random_scores(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def resized_like_tensorflow(scores: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    return np.asarray(tf.argmax(tf.image.resize(scores, size), axis=-1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(24, 32, 3), (6, 8, 3), (48, 64, 3), (5, 7, 3)])
def test_scores_are_interpolated_as_by_tensorflow(
    recipe_of: RecipeOf, shape: tuple[int, int, int], size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bands of a few rows."""
    monkeypatch.setattr(resampling, "_BAND_VALUES", 500)
    scores = random_scores(*shape)
    task = task_of(recipe_of, scores)
    answers = answer(task, scores, size)
    assert np.mean(resized_like_tensorflow(scores, size) != map_of(answers)) < 0.002
    assert task.compare(answers, NetworkResult({"map": scores}, size), task.tolerance).is_within


@pytest.mark.parametrize(
    ("outputs", "classes"), [("logits", 3), ("probabilities", 3), ("logits", 1), ("probabilities", 1)]
)
def test_the_probability_of_each_pixels_class(
    recipe_of: RecipeOf, outputs: str, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resampling, "_BAND_VALUES", 500)
    scores = 3 * random_scores(24, 32, classes)
    probabilities = tf.sigmoid(scores) if classes == 1 else tf.nn.softmax(scores)
    network_map = probabilities.numpy() if outputs == "probabilities" else scores
    task = task_of(recipe_of, network_map, NAMES if classes > 1 else NAMES[:2], outputs=outputs, probabilities=True)
    answers = answer(task, network_map, (24, 32))
    with Image.open(io.BytesIO(answers["serving_default"]["probability_png_bytes"])) as picture:
        levels = np.asarray(picture)
    expected = probabilities.numpy().max(-1) if classes > 1 else np.maximum(probabilities, 1 - probabilities)[..., 0]
    np.testing.assert_allclose(expected, levels / 255, atol=0.003)
    result = NetworkResult({"map": network_map}, (24, 32))
    assert task.compare(answers, result, task.tolerance).is_within
    assert not task.compare(answers, NetworkResult({"map": network_map * 0.8}, (24, 32)), task.tolerance).is_within


@pytest.mark.parametrize(
    ("size", "part"),
    [((24, 64), np.s_[6:18, :]), ((48, 20), np.s_[:, 11:21]), ((24, 32), np.s_[:, :])],
    ids=["wide", "high", "full"],
)
def test_the_padding_of_a_letterbox_is_cut_off(
    recipe_of: RecipeOf, size: tuple[int, int], part: tuple[slice, slice]
) -> None:
    scores = random_scores(24, 32, 3)
    task = task_of(recipe_of, scores, crop="letterbox")
    answers = answer(task, scores, size)
    assert np.mean(resized_like_tensorflow(scores[part], size) != map_of(answers)) < 0.002
    assert task.compare(answers, NetworkResult({"map": scores}, size), task.tolerance).is_within


@pytest.mark.parametrize("size", SIZES)
def test_maps_of_ids_are_resized_to_the_nearest(recipe_of: RecipeOf, size: tuple[int, int]) -> None:
    ids = np.random.default_rng(0).integers(0, 7, (12, 16)).astype(np.float32)
    task = task_of(recipe_of, ids, ("a", "", "c"), outputs=None)
    answers = answer(task, ids, size)
    expected = tf.image.resize(ids[..., np.newaxis], size, method="nearest").numpy()[..., 0]
    np.testing.assert_array_equal(expected, map_of(answers))
    row = answers["serving_default"]
    assert [float(np.mean(expected == class_id)) for class_id in range(3)] == pytest.approx(row["shares"].tolist())
    assert [b"a", b"", b"c"] == row["labels"].tolist()
    assert task.compare(answers, NetworkResult({"map": ids}, size), task.tolerance).is_within


@pytest.mark.parametrize(
    ("outputs", "threshold", "boundary"),
    [
        ("logits", None, 0.0),
        ("probabilities", None, 0.5),
        ("logits", 0.8, math.log(4)),
        ("probabilities", 0.8, 0.8),
        ("logits", 0, -2.0),
    ],
)
def test_one_score_per_pixel_decides_between_two_labels(
    recipe_of: RecipeOf, outputs: str, threshold: float | None, boundary: float
) -> None:
    scores = np.linspace(0, 1, 24 * 32, dtype=np.float32).reshape(24, 32, 1) + boundary - 0.5
    scores = scores.clip(0, 1) if outputs == "probabilities" else scores
    task = task_of(recipe_of, scores, ("ground", "road"), outputs=outputs, threshold=threshold)
    answers = answer(task, scores, (24, 32))
    roads = (scores[..., 0] > boundary) | (threshold == 0)
    np.testing.assert_array_equal(roads, map_of(answers))
    assert [1 - roads.mean(), roads.mean()] == pytest.approx(answers["serving_default"]["shares"].tolist())
    comparison = task.compare(answers, NetworkResult({"map": scores}, (24, 32)), task.tolerance)
    assert comparison.is_within
    assert f"road {roads.mean():.2f}" in comparison.answer


def test_a_map_of_one_class_compares_little(recipe_of: RecipeOf) -> None:
    for ids, caveat in (([0, 1], ""), ([1, 1], "every pixel is 'sea', so only one class was compared")):
        scores = np.eye(3, dtype=np.float32)[[ids]]
        task = task_of(recipe_of, scores)
        comparison = task.compare(answer(task, scores, (6, 8)), NetworkResult({"map": scores}, (6, 8)), task.tolerance)
        assert (True, caveat) == (comparison.is_within, comparison.caveat)
    ids = np.full((4, 4), 7, np.float32)
    task = task_of(recipe_of, ids, outputs=None)
    comparison = task.compare(answer(task, ids, (6, 8)), NetworkResult({"map": ids}, (6, 8)), task.tolerance)
    assert "every pixel is of class 7, so only one class was compared" == comparison.caveat


def test_other_maps_are_noticed(recipe_of: RecipeOf) -> None:
    scores = random_scores(24, 32, 3)
    task = task_of(recipe_of, scores)
    answers = answer(task, scores, (24, 32))
    changed = scores.copy()
    changed[:2, :, 1] += 10  # 2 of 24 rows
    comparison = task.compare(answers, NetworkResult({"map": changed}, (24, 32)), task.tolerance)
    assert not comparison.is_within
    assert 0.03 < comparison.difference < 2 / 24
    with pytest.raises(VerificationError, match="map has the shape"):
        task.compare(answers, NetworkResult({"map": scores}, (24, 31)), task.tolerance)
    answers["serving_default"]["shares"] += 0.1
    with pytest.raises(VerificationError, match="shares do not match its map"):
        task.compare(answers, NetworkResult({"map": scores}, (24, 32)), task.tolerance)
