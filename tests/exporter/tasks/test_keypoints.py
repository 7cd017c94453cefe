"""Task keypoints: from coordinates and heat maps to points in the photo, in the graph and with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import BakeError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Task, Tolerance

RecipeOf = Callable[..., Recipe]
STATED = {"task": "keypoints", "size": "80x100", "labels": None, "outputs": None}
PIXELS = {"points": "yx", "point_unit": "pixels"}
POINTS = np.float32([[10, 20, 0.9], [70, 90, 0.4]])  # y, x and score in an input of 80 by 100


def task_of(recipe_of: RecipeOf, output: np.ndarray, **values: Any) -> Task:
    return choose_task(recipe_of(**STATED | values), {"points": (None, *output.shape)}, ())


def answer(task: Task, output: np.ndarray, size: tuple[int, int]) -> Answers:
    """Compute the answer for one photo in the graph; the reference must agree."""
    signature = task.signatures()["serving_default"]
    values = signature.compute({"points": tf.constant(output[np.newaxis])}, tf.constant([size], tf.int64))
    answers = {"serving_default": {alias: v.numpy()[0] for alias, v in zip(signature.columns, values, strict=True)}}
    assert task.compare(answers, NetworkResult({"points": output}, size), Tolerance(atol=1e-4)).is_within
    return answers


@pytest.mark.parametrize(
    ("points", "unit", "scale"),
    [
        ("yx", "pixels", [[1, 1]]),
        ("xy", "pixels", [[1, 1]]),
        ("yx", "fractions", [[80, 100]]),
        ("xy", "fractions", [[80, 100]]),
    ],
)
@pytest.mark.parametrize(
    ("crop", "size", "expected"),
    [
        ("none", (800, 50), [[100, 10], [700, 45]]),
        ("letterbox", (400, 1000), [[-100, 200], [500, 900]]),  # 20 rows of padding above: both are outside
        ("letterbox", (160, 100), [[20, -10], [140, 130]]),  # 25 columns to the left
    ],
)
def test_every_convention_states_the_same_points(
    recipe_of: RecipeOf,
    points: str,
    unit: str,
    scale: list[list[float]],
    crop: str,
    size: tuple[int, int],
    expected: list[list[float]],
) -> None:
    places = POINTS[:, :2] / np.float32(scale)
    output = np.concatenate([places if points == "yx" else places[:, ::-1], POINTS[:, 2:]], axis=1)
    row = answer(task_of(recipe_of, output, points=points, point_unit=unit, crop=crop), output, size)
    found = row["serving_default"]
    np.testing.assert_allclose(expected, found["points"], atol=1e-3)
    np.testing.assert_array_equal(POINTS[:, 2], found["scores"])
    assert [b"0", b"1"] == found["names"].tolist()


def test_the_highest_cell_of_a_heat_map_is_the_point(recipe_of: RecipeOf) -> None:
    """A cell is 4 by 5 pixels of the input, and 8 by 5 of the photo. Of equal cells, any may be the answer."""
    maps = np.zeros((20, 20, 2), np.float32)
    maps[3, 7, 0], maps[19, 0, 1] = 5, 0.5
    task = task_of(recipe_of, maps)
    row = answer(task, maps, (160, 100))
    np.testing.assert_allclose([[28, 37.5], [156, 2.5]], row["serving_default"]["points"])
    np.testing.assert_array_equal([5, 0.5], row["serving_default"]["scores"])
    maps[0, 0, 0] = 5.01
    assert task.compare(row, NetworkResult({"points": maps}, (160, 100)), task.tolerance).is_within
    maps[0, 0, 0] = 6
    assert not task.compare(row, NetworkResult({"points": maps}, (160, 100)), task.tolerance).is_within


def test_points_have_names_and_a_skeleton_and_may_lack_scores(recipe_of: RecipeOf) -> None:
    values = {**PIXELS, "point_names": "left eye, nose", "skeleton": "nose-left eye"}
    row = answer(task_of(recipe_of, POINTS[:, :2], **values), POINTS[:, :2], (80, 100))["serving_default"]
    assert {"points", "names", "edges"} == row.keys()
    assert [b"left eye", b"nose"] == row["names"].tolist()
    assert [[1, 0]] == row["edges"].tolist()


def test_another_point_or_score_is_a_difference(recipe_of: RecipeOf) -> None:
    task = task_of(recipe_of, POINTS, **PIXELS)
    row = answer(task, POINTS, (80, 100))
    for column, change in ((0, 1.0), (1, 1.0), (2, 0.1)):
        other = POINTS.copy()
        other[1, column] += change
        assert not task.compare(row, NetworkResult({"points": other}, (80, 100)), task.tolerance).is_within


@pytest.mark.parametrize(("unit", "factor"), [("fractions", 1.0), ("pixels", 0.01)])
def test_coordinates_of_the_other_unit_are_an_error(recipe_of: RecipeOf, unit: str, factor: float) -> None:
    output = POINTS * np.float32([factor, factor, 1])
    task = task_of(recipe_of, output, points="yx", point_unit=unit)
    row = answer(task, output, (80, 100))
    (doubt,) = task.compare(row, NetworkResult({"points": output}, (80, 100)), task.tolerance).doubts
    assert doubt.is_error
    assert f"bake with --point-unit {'pixels' if unit == 'fractions' else 'fractions'}" == doubt.advice


@pytest.mark.parametrize(
    ("shape", "values", "message"),
    [
        ((2, 3), {}, "task keypoints needs --points and --point-unit"),
        ((20, 20, 2), PIXELS, "invalid points 'yx': the network returns heat maps"),
        ((2, 3), {**PIXELS, "point_names": "nose"}, "invalid point_names 'nose': 1 names; must be 2"),
        ((2, 3), {**PIXELS, "point_names": "a,a"}, "must be different names with commas, without -"),
        ((2, 3), {**PIXELS, "skeleton": "0-2"}, "invalid skeleton '0-2': no point is called '2', only 0, 1"),
        ((2, 3), {**PIXELS, "skeleton": "0"}, "must be pairs of names of points"),
        ((2, 3), {**PIXELS, "crop": "7/8"}, "task keypoints answers for the whole photo"),
    ],
)
def test_what_does_not_fit_is_explained(
    recipe_of: RecipeOf, shape: tuple[int, ...], values: dict[str, Any], message: str
) -> None:
    with pytest.raises(BakeError, match=message):
        task_of(recipe_of, np.zeros(shape), **values)
