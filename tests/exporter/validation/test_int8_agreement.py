"""How the answers of int8 agree with those of float32: for each task, what is doubtful, and what is rejected."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.errors import ParityError, RecipeError
from savedmodel_bakery.exporter.optimisation import Coverage, Speed
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import Quantisation
from savedmodel_bakery.exporter.tasks.classify import Binary, Classify, Multilabel
from savedmodel_bakery.exporter.tasks.heads import Heads
from savedmodel_bakery.exporter.tasks.labelled import Labelled
from savedmodel_bakery.exporter.tasks.task import NetworkResult, Task
from savedmodel_bakery.exporter.tasks.unlabelled import Embed, Regress, Tensors
from savedmodel_bakery.exporter.validation.int8_agreement import Int8Agreement, Int8Check, check_min_agreement

NAMES = ("sea", "sky", "dog")
QUANTISATION = Quantisation(Coverage(48, 0.969), (Speed(1, 10.0, 5.0), Speed(8, 8.0, 2.0)), 60, 100, {})
GOOD = Int8Agreement(40, 39, 0.004, 0.05, 0.95, Classify.common, Classify.change, QUANTISATION)


def answers(class_ids: list[int], scores: list[float], names: tuple[str, ...], tags: int | None = None) -> Any:
    labels = np.array([names[class_id].encode() for class_id in class_ids], object)
    best = {"labels": labels, "class_ids": np.array(class_ids), "scores": np.array(scores, np.float32)}
    return {"top_k": best} if tags is None else {"top_k": best, "serving_default": {**best, "count": tags}}


CHANGES: dict[str, tuple[Labelled, list[float], Any, bool, list[float]]] = {
    "same label": (
        Classify(NAMES, "probabilities", 2),
        [0.7, 0.2, 0.1],
        answers([0, 1], [0.6, 0.25], NAMES),
        True,
        [0.1, 0.05],
    ),
    "another label, and one that is missing": (
        Classify(NAMES, "probabilities", 2),
        [0.5, 0.4, 0.1],
        answers([1, 2], [0.6, 0.3], NAMES),
        False,
        [0.2, 0.2, 0.2],
    ),
    "below the threshold": (
        Binary(NAMES[:2], "probabilities", 2, 0.9),
        [0.8],
        answers([0, 1], [0.15, 0.85], NAMES),
        True,
        [0.05, 0.05],
    ),
    "above the threshold": (
        Binary(NAMES[:2], "probabilities", 2, 0.5),
        [0.45],
        answers([1, 0], [0.55, 0.45], NAMES),
        False,
        [0.1, 0.1],
    ),
    "same set": (
        Multilabel(NAMES, "probabilities", 2, (0.5, 0.5, 0.2)),
        [0.6, 0.1, 0.7],
        answers([0, 2], [0.7, 0.6], NAMES, tags=2),
        True,
        [0.1, 0.1],
    ),
    "one label less": (
        Multilabel(NAMES, "probabilities", 2, (0.5, 0.5, 0.2)),
        [0.6, 0.1, 0.3],
        answers([0, 2], [0.6, 0.1], NAMES, tags=1),
        False,
        [0.0, 0.2],
    ),
}


@pytest.mark.parametrize(("task", "outputs", "answered", "is_same", "changes"), CHANGES.values(), ids=CHANGES)
def test_labels_of_a_task(
    task: Labelled, outputs: list[float], answered: Any, is_same: bool, changes: list[float]
) -> None:
    result = NetworkResult({"vector": np.array(outputs, np.float32)}, (1, 1))
    change = task.compare_approximation(answered, result)
    assert is_same == change.agreement
    np.testing.assert_allclose(changes, change.changes, atol=1e-6)


def embedding(*values: float) -> Any:
    return {"serving_default": {"embedding": np.array(values, np.float32)}}


def ages(value: float) -> Any:
    return {"serving_default": {"age": np.float32(value)}}


TENSORS = Tensors({"heat": ((2,), np.dtype(np.float32))})
HEADS = Heads({"colour": Classify(NAMES, "probabilities", 2), "age": Regress(("age",))})
APPROXIMATIONS: dict[str, tuple[Task, dict[str, list[float]], Any, float, float]] = {
    "the same direction": (Embed(2, "none"), {"vector": [1, 0]}, embedding(1, 0.1), 1, 0.005),
    "another direction": (Embed(2, "none"), {"vector": [1, 0]}, embedding(1, 0.3), 0, 0.042),
    "about the same number": (Regress(("age",)), {"vector": [40]}, ages(41), 1, 1),
    "another number": (Regress(("age",)), {"vector": [40]}, ages(43), 0, 3),
    "tensors": (TENSORS, {"heat": [0, 2]}, {"serving_default": {"heat": np.float32([0.05, 2])}}, 1, 0.025),
    "heads": (
        HEADS,
        {"colour/vector": [0.7, 0.2, 0.1], "age/vector": [40]},
        {"colour": answers([0, 1], [0.6, 0.25], NAMES)["top_k"], "age": {"age": np.float32(43)}},
        0,
        3,
    ),
}


@pytest.mark.parametrize(
    ("task", "outputs", "answered", "agreement", "most"), APPROXIMATIONS.values(), ids=APPROXIMATIONS
)
def test_answers_of_other_tasks(
    task: Task, outputs: dict[str, list[float]], answered: Any, agreement: float, most: float
) -> None:
    result = NetworkResult({role: np.array(values, np.float32) for role, values in outputs.items()}, (1, 1))
    change = task.compare_approximation(answered, result)
    assert agreement == change.agreement
    assert most == pytest.approx(change.changes.max(), abs=1e-3)


def test_a_good_agreement_has_no_warnings() -> None:
    GOOD.check()
    assert [] == GOOD.warnings
    same, speed = GOOD.describe()
    assert same.startswith(
        "int8 and float32 have the same labels for 39 of 40 photos (0.975; at least 0.95 is required)"
    )
    assert "96.9% of the multiplications, in 48 layers; the network is 2.0 times as fast as float32" in speed
    values = GOOD.to_json()
    assert (0.975, 60, 0.969) == tuple(values[key] for key in ("agreement", "calibration_photos", "quantised_share"))
    assert [{"batch": 1, "float32_ms": 10.0, "int8_ms": 5.0}, {"batch": 8, "float32_ms": 8.0, "int8_ms": 2.0}] == (
        values["speeds"]
    )


def test_warnings() -> None:
    few = dataclasses.replace(GOOD, photos=19, same=19)
    assert ["the agreement of int8 with float32 is coarse, because it was measured on 19 photos"] == [
        warning.partition(";")[0] for warning in few.warnings
    ]
    changed = dataclasses.replace(
        QUANTISATION, photos=30, available_photos=49, unreadable_photos={"a.zip/b.jpg": "it is empty"}
    )
    assert [
        "photos for calibration: skipped 1 that can't be read: a.zip/b.jpg: it is empty",
        "there are only 49 photos for calibration, including those that are held back; 50 or more are better",
    ] == dataclasses.replace(GOOD, quantisation=changed).warnings
    slow = dataclasses.replace(QUANTISATION, speeds=(Speed(1, 5.04, 6.0), Speed(8, 8.0, 2.0)))
    (warning,) = dataclasses.replace(GOOD, quantisation=slow).warnings
    assert "int8 is not faster than float32 on this machine: 6 instead of 5.04 ms per image in batches of 1" in warning


def test_too_few_photos_with_the_same_labels() -> None:
    with pytest.raises(ParityError, match=r"^int8 .* for only 37 of 40 photos \(0.925\); at least 0.95 is required"):
        dataclasses.replace(GOOD, same=37).check()


def test_no_photos_to_compare_on(recipe_of: Any) -> None:
    recipe = recipe_of(precision="int8", calibration="photos")
    check = Int8Check(lambda _: None, recipe, CHANGES["same label"][0], min_agreement=0.9, quantisation=None)
    with pytest.raises(ParityError, match=r"^no photos to compare int8 with float32 on"):
        check.agreement()


def test_the_share_is_for_int8(recipe_of: Any) -> None:
    int8: Recipe = recipe_of(precision="int8", calibration="photos")
    assert (0.95, 0.5) == (check_min_agreement(None, int8), check_min_agreement(0.5, int8))
    with pytest.raises(RecipeError, match=r"^--min-agreement is for precision int8, and the recipe has precision floa"):
        check_min_agreement(0.5, recipe_of())
