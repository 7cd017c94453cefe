"""Task detect: from a network's outputs to boxes in the photo, in the graph and with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.box_reference import Detection, iou, share_without_partner
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.task import Answers, NetworkResult, Task, Tolerance

RecipeOf = Callable[..., Recipe]
NAMES = ("cat", "dog")
SIZE = {"size": "80x100", "boxes": "yxyx", "box_unit": "pixels", "task": "detect"}
BOX = [10.0, 20.0, 30.0, 60.0]  # ymin, xmin, ymax, xmax in an input of 80 by 100


def task_of(recipe_of: RecipeOf, network: dict[str, np.ndarray], names: tuple[str, ...] = NAMES, **values: Any) -> Task:
    shapes = {role: (None, *array.shape) for role, array in network.items()}
    return choose_task(recipe_of(**SIZE | values), shapes, names)


def answer(task: Task, outputs: dict[str, np.ndarray], size: tuple[int, int] = (80, 100)) -> Answers:
    """Compute the answer for one photo in the graph; the reference must agree."""
    signature = task.signatures()["serving_default"]
    tensors = {role: tf.constant(array[np.newaxis], tf.float32) for role, array in outputs.items()}
    values = signature.compute(tensors, tf.constant([size], tf.int64))
    answers = {"serving_default": {alias: v.numpy()[0] for alias, v in zip(signature.columns, values, strict=True)}}
    comparison = task.compare(answers, NetworkResult(outputs, size), Tolerance(atol=1e-5, share=1.0, iou=0.999))
    assert (True, 0.0) == (comparison.is_within, comparison.difference)
    return answers


def found(answers: Answers) -> list[tuple[str, float, list[float]]]:
    row = answers["serving_default"]
    count = int(row["count"])
    for alias in ("labels", "scores", "boxes"):
        assert not any(row[alias][count:].reshape(-1).tolist())
    columns = (row[alias][:count].tolist() for alias in ("labels", "scores", "boxes"))
    return [
        (label.decode(), pytest.approx(score, abs=1e-6), pytest.approx(box, abs=1e-3))
        for label, score, box in zip(*columns, strict=True)
    ]


@pytest.mark.parametrize(
    ("boxes", "unit", "stated"),
    [
        ("yxyx", "pixels", BOX),
        ("xyxy", "pixels", [20, 10, 60, 30]),
        ("cxcywh", "pixels", [40, 20, 40, 20]),
        ("yxyx", "fractions", [0.125, 0.2, 0.375, 0.6]),
        ("xyxy", "fractions", [0.2, 0.125, 0.6, 0.375]),
        ("cxcywh", "fractions", [0.4, 0.25, 0.4, 0.25]),
    ],
)
def test_every_convention_states_the_same_box(recipe_of: RecipeOf, boxes: str, unit: str, stated: list[float]) -> None:
    outputs = {"boxes": np.float32([stated]), "scores": np.float32([[0.1, 0.9]])}
    task = task_of(recipe_of, outputs, boxes=boxes, box_unit=unit)
    assert [("dog", 0.9, BOX)] == found(answer(task, outputs))


@pytest.mark.parametrize(
    ("crop", "size", "expected"),
    [
        ("none", (800, 1000), [100, 200, 300, 600]),
        ("none", (80, 50), [10, 10, 30, 30]),
        ("letterbox", (800, 1000), [100, 200, 300, 600]),
        ("letterbox", (400, 1000), [0, 200, 100, 600]),  # 20 rows of padding above; the box is clipped
        ("letterbox", (160, 100), [20, 0, 60, 70]),  # 25 columns to the left
        ("letterbox", (1, 1), [0.125, 0.125, 0.375, 0.625]),
    ],
)
def test_boxes_are_in_pixels_of_the_photo(
    recipe_of: RecipeOf, crop: str, size: tuple[int, int], expected: list[float]
) -> None:
    outputs = {"boxes": np.float32([BOX]), "scores": np.float32([[0.9, 0.1]])}
    assert [("cat", 0.9, expected)] == found(answer(task_of(recipe_of, outputs, crop=crop), outputs, size))


def test_overlapping_boxes_of_one_label_are_dropped(recipe_of: RecipeOf) -> None:
    """The second box overlaps the first by an IoU of 2/3, the third by 1/3."""
    boxes = np.float32([BOX, [10, 28, 30, 68], [10, 40, 30, 80]])
    assert [pytest.approx(value) for value in (2 / 3, 1 / 3)] == [iou(boxes[0], other) for other in boxes[1:]]
    outputs = {"boxes": boxes, "scores": np.float32([[0.8, 0], [0.9, 0], [0.7, 0]])}
    shifted, third = ("cat", 0.9, boxes[1].tolist()), ("cat", 0.7, boxes[2].tolist())
    assert [shifted, third] == found(answer(task_of(recipe_of, outputs, iou_threshold=0.6), outputs))
    first = ("cat", 0.8, BOX)
    assert [shifted, first, third] == found(answer(task_of(recipe_of, outputs, iou_threshold=0.7), outputs))
    assert [shifted, first] == found(answer(task_of(recipe_of, outputs, iou_threshold=1, max_boxes=2), outputs))
    outputs["scores"] = np.float32([[0.8, 0], [0, 0.9], [0.7, 0]])  # another label doesn't matter
    two = [("dog", 0.9, boxes[1].tolist()), first, third]
    assert two == found(answer(task_of(recipe_of, outputs, iou_threshold=0.6), outputs))


def test_edges_in_the_wrong_order_overlap_all_the_same(recipe_of: RecipeOf) -> None:
    """A network may return such boxes early in its training."""
    ymin, xmin, ymax, xmax = BOX
    outputs = {
        "boxes": np.float32([[ymax, xmin, ymin, xmax], [ymin, xmax, ymax, xmin], [50, 60, 40, 20]]),
        "scores": np.float32([[0.9, 0], [0.8, 0], [0.7, 0]]),
    }
    first, third = ("cat", 0.9, outputs["boxes"][0].tolist()), ("cat", 0.7, [50, 60, 40, 20])
    assert [first, third] == found(answer(task_of(recipe_of, outputs), outputs))


@pytest.mark.parametrize(
    ("background", "values", "scores", "expected"),
    [
        ("none", "probabilities", [0.5, 0.4999], [("cat", 0.5)]),
        ("none", "logits", [0, 1], [("dog", 0.7310586), ("cat", 0.5)]),
        ("first", "logits", [0, 2, 0], [("cat", 0.7869861)]),
        ("last", "logits", [0, 2, 0], [("dog", 0.7869861)]),
        ("first", "probabilities", [0.3, 0, 0.7], [("dog", 0.7)]),
        ("last", "probabilities", [0.3, 0, 0.7], []),
    ],
)
def test_scores_become_probabilities_of_labels(
    recipe_of: RecipeOf, background: str, values: str, scores: list[float], expected: list[tuple[str, float]]
) -> None:
    outputs = {"boxes": np.float32([BOX]), "scores": np.float32([scores])}
    task = task_of(recipe_of, outputs, background_class=background, outputs=values)
    assert [(label, score, BOX) for label, score in expected] == found(answer(task, outputs))


@pytest.mark.parametrize("count", [None, 2])
def test_boxes_of_the_object_detection_api_are_only_sorted(recipe_of: RecipeOf, count: int | None) -> None:
    """They may overlap. Ids may have gaps, and an id without a name is answered as a number."""
    boxes = np.float32([[0.1, 0.2, 0.3, 0.6], [0.1, 0.2, 0.3, 0.6], [0, 0, 1, 1]])
    outputs = {
        "boxes": boxes,
        "scores": np.float32([0.6, 0.8, 0.7]),
        "classes": np.float32([1, 90, 5]),
    } | ({} if count is None else {"count": np.float32(count)})
    names = tuple({1: "cat", 90: "brush"}.get(class_id, "") for class_id in range(91))
    values = {"boxes": "tf-object-detection", "box_unit": None, "outputs": None}
    task = task_of(recipe_of, outputs, names, **values)
    first, second, third = ("brush", 0.8, [8, 20, 24, 60]), ("5", 0.7, [0, 0, 80, 100]), ("cat", 0.6, [8, 20, 24, 60])
    assert ([first, second, third] if count is None else [first, third]) == found(answer(task, outputs))
    assert [first] == found(answer(task_of(recipe_of, outputs, names, **values, max_boxes=1), outputs))


def test_a_network_may_return_one_class_per_box(recipe_of: RecipeOf) -> None:
    outputs = {"boxes": np.float32([BOX, BOX]), "scores": np.float32([0.9, 0.8]), "classes": np.float32([1, 1])}
    assert [("dog", 0.9, BOX)] == found(answer(task_of(recipe_of, outputs), outputs))


def test_boxes_beyond_the_count_and_of_unknown_classes_are_ignored(recipe_of: RecipeOf) -> None:
    far = [50.0, 20.0, 70.0, 60.0]
    outputs = {
        "boxes": np.float32([BOX, far, far]),
        "scores": np.float32([0.8, 0.9, -1]),
        "classes": np.float32([1, 7, 0]),
        "count": np.float32(2),
    }
    assert [("dog", 0.8, BOX)] == found(answer(task_of(recipe_of, outputs), outputs))


def test_a_count_applies_to_scores_per_class_too(recipe_of: RecipeOf) -> None:
    outputs = {
        "boxes": np.float32([BOX, [50, 20, 70, 60]]),
        "scores": np.float32([[0.1, 0.8], [0.9, 0.1]]),
        "count": np.float32(1),
    }
    assert [("dog", 0.8, BOX)] == found(answer(task_of(recipe_of, outputs), outputs))


def test_probabilities_are_checked(recipe_of: RecipeOf) -> None:
    outputs = {"boxes": np.float32([BOX]), "scores": np.float32([[3.0, 0]])}
    with pytest.raises(VerificationError, match="the network returns 3 for a photo; bake with --outputs logits"):
        answer(task_of(recipe_of, outputs), outputs)


A, MOVED, FAR = (Detection("a", 0.8, np.array(box)) for box in (BOX, [10, 21, 30, 61], [50, 20, 70, 60]))
B, C = (Detection("b", 0.798, np.array(box)) for box in (BOX, FAR.box))


@pytest.mark.parametrize(
    ("actual", "expected", "share"),
    [
        ([], [], 0),
        ([A], [A], 0),
        ([MOVED], [A], 0),
        ([A], [], 1),
        ([], [A], 1),
        ([FAR], [A], 1),
        ([A, FAR], [A], 1 / 3),
        ([A, A], [A], 1 / 3),
        ([A._replace(label="b")], [A], 1),
        ([A._replace(score=0.805)], [A], 0),
        ([A._replace(score=0.82)], [A], 1),
        ([A, FAR._replace(score=0.505)], [A], 0),  # it may be on either side of the threshold
        ([A, FAR, B], [A, B, FAR], 0),  # full lists
        ([A, FAR, B], [A, B, C], 1 / 6),  # FAR is not a box of the network
        ([A, FAR, B], [A, B, C, FAR], 0),  # FAR may be in place of C
        ([A, FAR], [A, B, FAR], 1 / 5),  # not full, so B is missing
        ([A, B, FAR], [A._replace(score=0.9), B, C, FAR], 2 / 6),
    ],
)
def test_boxes_need_a_partner(actual: list[Detection], expected: list[Detection], share: float) -> None:
    tolerance = Tolerance(atol=0.01, iou=0.9)
    assert share == pytest.approx(share_without_partner(actual, expected, tolerance, 0.5, 3))


def row(detections: list[tuple[str, float, list[float]]]) -> Answers:
    labels, scores, boxes = zip(*detections, strict=True)
    arrays = {"labels": np.array([label.encode() for label in labels], object), "scores": np.float32(scores)}
    return {"serving_default": {**arrays, "boxes": np.float32(boxes), "count": np.int32(len(detections))}}


@pytest.mark.parametrize("convention", ["yxyx", "tf-object-detection"])
def test_a_full_list_may_end_with_any_box_of_about_the_same_score(recipe_of: RecipeOf, convention: str) -> None:
    corners = [[10.0 * top, 0, 10 * top + 8, 50] for top in range(5)]
    scores = [0.9, 0.8, 0.8, 0.7999999, 0.6]
    outputs = {"boxes": np.float32(corners), "scores": np.float32(scores), "classes": np.zeros(5, np.float32)}
    values = {"box_unit": None, "outputs": None} if convention != "yxyx" else {}
    if values:
        outputs["boxes"] /= np.float32([80, 100, 80, 100])
    task = task_of(recipe_of, outputs, max_boxes=2, boxes=convention, **values)
    every = [("cat", score, corner) for score, corner in zip(scores, corners, strict=True)]

    def share(*positions: int) -> float:
        answers = row([every[position] for position in positions])
        return task.compare(answers, NetworkResult(outputs, (80, 100)), Tolerance(atol=1e-5, iou=0.99)).difference

    assert [0, 0, 0] == [share(0, last) for last in (1, 2, 3)]
    assert 0.5 == share(0, 4)  # worse than the last one, and one is missing
    assert 0.25 == share(1, 2)  # without the best one
    assert pytest.approx(1 / 3) == share(0)  # not full


def test_a_photo_without_boxes_compares_nothing(recipe_of: RecipeOf) -> None:
    outputs = {"boxes": np.float32([BOX]), "scores": np.float32([[0.1, 0.3]])}
    for threshold, caveat in ((0.25, ""), (0.5, "no box has a score of 0.5 or more, so no boxes were compared")):
        task = task_of(recipe_of, outputs, threshold=threshold)
        comparison = task.compare(answer(task, outputs), NetworkResult(outputs, (80, 100)), task.tolerance)
        assert (True, caveat) == (comparison.is_within, comparison.caveat)


@pytest.mark.parametrize(
    ("values", "boxes", "expected"),
    [
        (
            {"box_unit": "fractions"},
            [BOX, [0, 0, 70, 95]],
            (
                "boxes are far outside of 0 to 1",
                "edges from 0 to 95",
                "bake with --box-unit pixels",
                True,
            ),
        ),
        (
            {"box_unit": "pixels"},
            [[0.1, 0.2, 0.3, 0.6], [-0.1, 0.5, 1.1, 0.7]],
            ("are below 2", "edges from -0.1 to 1.1", "bake with --box-unit fractions", True),
        ),
        (
            {"box_unit": "pixels"},
            [[30, 60, 10, 20], [-9, -9, -1, -1]],
            ("all boxes are empty", "edges from -9 to 60", "check --boxes and --box-unit", False),
        ),
        ({"box_unit": "fractions"}, [[0.1, 0.2, 0.3, 0.6], [-3, 0, 4, 1], [0, 0, 1, 1]], None),  # one is far outside
        ({"box_unit": "pixels"}, [BOX, [0, 0, 1, 1]], None),
        ({"box_unit": "pixels", "threshold": "0.95"}, [[0.1, 0.2, 0.3, 0.6]], None),  # below the threshold
    ],
)
def test_boxes_in_another_unit_are_doubtful(
    recipe_of: RecipeOf, values: dict[str, Any], boxes: list[list[float]], expected: tuple[str, str, str, bool] | None
) -> None:
    outputs = {"boxes": np.float32(boxes), "scores": np.float32([[0.9, 0.1]] * len(boxes))}
    task = task_of(recipe_of, outputs, **values)
    doubts = task.compare(answer(task, outputs), NetworkResult(outputs, (80, 100)), task.tolerance).doubts
    if expected is None:
        assert () == doubts
    else:
        (doubt,) = doubts
        assert expected[0] in doubt.reason
        assert expected[1:] == (doubt.values, doubt.advice, doubt.is_error)


@pytest.mark.parametrize(("scores", "is_doubtful"), [([0, 1], True), ([0.1, 0.9], True), ([-0.1, 0.9], False)])
def test_logits_like_probabilities_are_doubtful(recipe_of: RecipeOf, scores: list[float], is_doubtful: bool) -> None:
    outputs = {"boxes": np.float32([BOX]), "scores": np.float32([scores])}
    for stated in ("logits", "probabilities") if is_doubtful else ("logits",):
        task = task_of(recipe_of, outputs, outputs=stated)
        doubts = task.compare(answer(task, outputs), NetworkResult(outputs, (80, 100)), task.tolerance).doubts
        assert (is_doubtful and stated == "logits") == bool(doubts)
