"""Masks of task detect: from a network's grids to run lengths of the photo, in the graph and with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.answers.run_lengths import decode_mask
from savedmodel_bakery.errors import BakeError, VerificationError
from savedmodel_bakery.exporter.recipe import Preprocessing, Recipe
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.mask_reference import expected_mask, mask_iou
from savedmodel_bakery.exporter.tasks.mask_settings import MaskSettings
from savedmodel_bakery.exporter.tasks.masks import encode_masks
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Task, Tolerance

RecipeOf = Callable[..., Recipe]
PreprocessingOf = Callable[..., Preprocessing]
Outputs = dict[str, np.ndarray]
STATED = {"task": "detect", "size": "80x100", "boxes": "yxyx", "box_unit": "pixels", "max_boxes": 4}
BOX = MaskSettings("box", 0.5, is_corner_aligned=False)
API = MaskSettings("box", 0.5, is_corner_aligned=True)
INPUT = MaskSettings("input", 0.5, is_corner_aligned=False)
EXACT = Tolerance(atol=1e-5)


@pytest.fixture(scope="module")
def mask_of(preprocessing_of: PreprocessingOf) -> Callable[..., np.ndarray]:
    """Return a function that computes the mask of a box in the graph; the reference must agree."""

    def mask_of(settings: MaskSettings, grid: Any, box: Any, size: tuple[int, int], crop: str = "none") -> np.ndarray:
        preprocessing, outputs = preprocessing_of(size="80x100", crop=crop), {"masks": np.float32([grid])}
        boxes, sizes = tf.constant([[box]], tf.float32), tf.constant([size], tf.int64)
        tensors = {"masks": tf.constant(outputs["masks"][np.newaxis])}
        rows, count = tf.constant([[0]]), tf.constant([1])
        ((counts,),) = encode_masks(settings, preprocessing, tensors, rows, boxes, count, sizes).numpy()
        mask = decode_mask(counts.decode(), size)
        expected = expected_mask(settings, preprocessing, outputs, 0, np.array(box, np.float64), size)
        assert 1 == mask_iou(mask, expected, EXACT)
        return mask

    return mask_of


def test_masks_of_boxes_are_pasted_with_cells_as_areas(mask_of: Callable[..., np.ndarray]) -> None:
    """The value of a cell is at its centre. A pixel is in the box if its centre is."""
    mask = mask_of(BOX, [[1, 0], [0, 0]], [1, 2, 5, 6], (6, 8))
    expected = np.zeros((6, 8), bool)
    expected[1:3, 2:4] = True  # 1, 0.75 twice, and the product of these
    np.testing.assert_array_equal(expected, mask)


def test_masks_of_the_object_detection_api_are_pasted_as_it_does(mask_of: Callable[..., np.ndarray]) -> None:
    """`reframe_box_masks_to_image_masks` crops and resizes a mask at the corners of the image in its box."""
    random = np.random.default_rng(0)
    for size in ((50, 70), (7, 300), (64, 20)):
        grid = random.random((33, 33)).astype(np.float32)
        low, high = random.uniform(0, 0.5, 2), random.uniform(0.5, 1, 2)
        corners = np.concatenate([-low, 1 - low]) / np.tile(high - low, 2)
        resized = tf.image.crop_and_resize(grid[np.newaxis, ..., np.newaxis], [corners], [0], size)[0, ..., 0].numpy()
        mask = mask_of(API, grid, np.concatenate([low, high]) * [*size, *size], size)
        differs = (resized > 0.5) != mask
        assert not np.any(differs & (np.abs(resized - 0.5) > 1e-3))


@pytest.mark.parametrize(
    ("crop", "size", "drawn"),
    [
        ("none", (160, 200), (20, 40, 60, 120)),
        ("none", (40, 50), (5, 10, 15, 30)),
        ("letterbox", (400, 1000), (0, 200, 100, 600)),  # 20 rows of padding above
        ("letterbox", (160, 100), (20, 0, 60, 70)),  # 25 columns to the left
    ],
)
def test_masks_of_the_input_undo_its_preprocessing(
    mask_of: Callable[..., np.ndarray], crop: str, size: tuple[int, int], drawn: tuple[int, int, int, int]
) -> None:
    """Each cell is a pixel of the input. The mask has more than the box, which cuts it."""
    grid = np.zeros((80, 100))
    grid[10:30, 20:60] = 1
    grid[60:] = 1
    top, left, bottom, right = drawn
    mask = mask_of(INPUT, grid, [0, 0, bottom + 5, size[1]], size, crop)
    expected = np.zeros(size, bool)
    expected[top:bottom, left:right] = True
    assert np.mean(expected != mask) < 1e-4  # interpolation rounds corners
    half = mask_of(INPUT, grid, [0, 0, bottom + 5, (left + right) / 2], size, crop)
    expected[:, (left + right) // 2 :] = False
    assert np.mean(expected != half) < 1e-4


def test_the_graph_and_the_reference_agree_on_any_mask(mask_of: Callable[..., np.ndarray]) -> None:
    """Of any size, and boxes of any size, also beyond the photo."""
    random = np.random.default_rng(1)
    shares = []
    for _ in range(20):
        size = tuple(random.integers(1, 150, 2).tolist())
        grid = random.random(random.integers(1, 40, 2))
        edges = np.sort(random.uniform(-20, np.array([size, size]) + 20, (2, 2)), axis=0)
        box = np.float32(edges if random.random() < 0.7 else [[-1, -1], np.add(size, 1)]).reshape(4)
        settings = (BOX, API, INPUT)[random.integers(3)]
        shares.append(mask_of(settings, grid, box, size, random.choice(["none", "letterbox"])).mean())
    assert 0.1 < np.mean(shares) < 0.5


@pytest.mark.parametrize("box", [[5, 2, 1, 6], [1, 6, 5, 2], [-9, -9, -1, -1], [90, 90, 99, 99], [3, 3, 3, 3]])
def test_a_box_without_pixels_has_an_empty_mask(mask_of: Callable[..., np.ndarray], box: list[int]) -> None:
    for settings in (BOX, INPUT):
        assert not mask_of(settings, np.ones((5, 5)), box, (6, 8)).any()


def test_boxes_and_masks_that_are_not_finite_do_no_harm(preprocessing_of: PreprocessingOf) -> None:
    masks = np.random.default_rng(0).choice(np.float32([np.nan, np.inf, -np.inf, 0, 1]), (1, 1, 20, 20))
    boxes = tf.constant([[[np.nan, -np.inf, np.inf, 8], [0, 0, 6, 8]]])
    for settings in (BOX, API):
        texts = encode_masks(
            settings,
            preprocessing_of(),
            {"masks": masks},
            tf.constant([[0, 0]]),
            boxes,
            tf.constant([2]),
            tf.constant([[6, 8]], tf.int64),
        )
        for text in texts.numpy()[0]:
            decode_mask(text.decode(), (6, 8))


def task_of(recipe_of: RecipeOf, network: Outputs, **values: Any) -> Task:
    shapes = {role: (None, *array.shape) for role, array in network.items()}
    return choose_task(recipe_of(**STATED | values), shapes, ("cat", "dog"))


def answers_of(task: Task, outputs: Outputs, size: tuple[int, int] = (80, 100)) -> Answers:
    signature = task.signatures()["serving_default"]
    tensors = {role: tf.constant(array[np.newaxis], tf.float32) for role, array in outputs.items()}
    values = signature.compute(tensors, tf.constant([size], tf.int64))
    return {"serving_default": {alias: v.numpy()[0] for alias, v in zip(signature.columns, values, strict=True)}}


def check(task: Task, answers: Answers, outputs: Outputs) -> tuple[bool, float]:
    comparison = task.compare(answers, NetworkResult(outputs, (80, 100)), Tolerance(atol=1e-5, share=1.0, iou=0.99))
    return comparison.is_within, comparison.difference


def areas(answers: Answers) -> list[int]:
    row = answers["serving_default"]
    assert [80, 100] == row["mask_size"].tolist()
    assert not any(row["mask_counts"][row["count"] :])
    return [int(decode_mask(text.decode(), (80, 100)).sum()) for text in row["mask_counts"][: row["count"]]]


BOXES = np.float32([[10, 20, 30, 60], [10, 21, 30, 61], [50, 20, 70, 60]])
GRIDS = np.ones((3, 4, 4), np.float32)
GRIDS[1, :2], GRIDS[2, :, :3] = 0, 0


def test_a_box_that_remains_has_its_own_mask(recipe_of: RecipeOf) -> None:
    """The first box is worse than the second, which has half of its pixels, and is dropped."""
    outputs = {"boxes": BOXES, "scores": np.float32([[0, 0.8], [0, 0.9], [0.95, 0]]), "masks": GRIDS}
    task = task_of(recipe_of, outputs, mask_area="box")
    answers = answers_of(task, outputs)
    assert [20 * 10, 10 * 40] == areas(answers)
    assert (True, 0) == check(task, answers, outputs)
    row = answers["serving_default"]
    swapped = {**row, "mask_counts": row["mask_counts"][[1, 0, 2, 3]]}
    assert (False, 1) == check(task, {"serving_default": swapped}, outputs)
    turned = {**row, "mask_size": row["mask_size"][::-1]}
    with pytest.raises(VerificationError, match=r"masks have the size \(100, 80\), the photo \(80, 100\)"):
        check(task, {"serving_default": turned}, outputs)


def test_boxes_of_the_object_detection_api_keep_their_masks(recipe_of: RecipeOf) -> None:
    """They are sorted by their scores."""
    outputs = {
        "boxes": BOXES / np.float32([80, 100, 80, 100]),
        "scores": np.float32([0.6, 0.9, 0.8]),
        "classes": np.float32([0, 1, 0]),
        "masks": GRIDS,
    }
    task = task_of(recipe_of, outputs, boxes="tf-object-detection", box_unit=None, outputs=None)
    answers = answers_of(task, outputs)
    half, quarter, whole = areas(answers)
    assert 0 < quarter < half < whole <= 20 * 40
    assert (True, 0) == check(task, answers, outputs)


def test_masks_are_sums_of_prototypes(recipe_of: RecipeOf) -> None:
    """One is above 0 in the left half of the input, one in its upper half; boxes cut them."""
    left, upper = np.where(np.arange(10) < 5, 1, -1), np.where(np.arange(8) < 4, 1, -1)
    outputs = {
        "boxes": np.float32([[0, 0, 80, 100], [0, 0, 60, 80]]),
        "scores": np.float32([[0.9, 0], [0, 0.8]]),
        "masks": np.float32([[3, 0], [0, -2]]),
        "prototypes": np.stack(np.broadcast_arrays(left, upper[:, np.newaxis]), axis=-1).astype(np.float32),
    }
    task = task_of(recipe_of, outputs)
    answers = answers_of(task, outputs)
    assert [80 * 50, 20 * 80] == areas(answers)
    assert (True, 0) == check(task, answers, outputs)


@pytest.mark.parametrize(
    ("changes", "values", "message"),
    [
        ({}, {}, "task detect needs --mask-area: whether a mask covers its box or the network's input"),
        ({"masks": (3, 4)}, {}, "the network's masks have 3 axes: must be .* prototypes=NAME"),
        ({"prototypes": (8, 8, 2)}, {}, "the network's masks have 4 axes"),
        ({"masks": (3, 4), "prototypes": (8, 8, 2)}, {}, "returns 4 coefficients of each mask, but 2 prototypes"),
        ({"masks": (3, 2), "prototypes": (8, 8, 2)}, {"mask_area": "box"}, "invalid mask_area 'box': masks of proto"),
        ({"masks": None, "prototypes": (8, 8, 2)}, {}, "prototypes need their coefficients: .* masks=NAME"),
        ({"masks": None}, {"mask_area": "box"}, "invalid mask_area 'box': the network returns no masks; .*masks=NAME"),
        ({"masks": None}, {"mask_threshold": 0}, "invalid mask_threshold '0': the network returns no masks"),
        ({"masks": (3, None, 4)}, {"mask_area": "input"}, r"masks have the size \(None, 4\): .* it must be fixed"),
        ({"masks": (2, 4, 4)}, {"mask_area": "box"}, "the network returns 3 boxes, 3 scores, 2 masks per image"),
        ({}, {"mask_threshold": "inf"}, "invalid mask_threshold 'inf': must be a number, such as 0.5"),
    ],
)
def test_masks_that_do_not_fit_are_rejected(
    recipe_of: RecipeOf, changes: Mapping[str, Any], values: dict[str, Any], message: str
) -> None:
    shapes = {"boxes": (3, 4), "scores": (3, 2), "masks": (3, 4, 4)} | changes
    with pytest.raises(BakeError, match=message):
        choose_task(
            recipe_of(**STATED | values),
            {role: (None, *shape) for role, shape in shapes.items() if shape is not None},
            ("cat", "dog"),
        )


@pytest.mark.parametrize(
    ("threshold", "values", "advice"),
    [
        (0.5, [0, 1], None),
        (0.5, [-3, 4], "if they are logits, bake with --mask-threshold 0"),
        (0, [0, 1], "if they are probabilities, bake with --mask-threshold 0.5"),
        (0, [-3, 4], None),
    ],
)
def test_a_threshold_for_other_values_is_doubtful(
    recipe_of: RecipeOf, threshold: float, values: list[float], advice: str | None
) -> None:
    outputs = {"boxes": BOXES[:1], "scores": np.float32([[0.9, 0]]), "masks": np.float32([[values]])}
    task = task_of(recipe_of, outputs, mask_area="box", mask_threshold=threshold)
    comparison = task.compare(answers_of(task, outputs), NetworkResult(outputs, (80, 100)), task.tolerance)
    assert ([] if advice is None else [advice]) == [doubt.advice for doubt in comparison.doubts]
