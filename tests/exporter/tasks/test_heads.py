"""Task heads: the answers of several tasks, in the graph and with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import BakeError, VerificationError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.task import Comparison, NetworkResult, Task

RecipeOf = Callable[..., Recipe]
HEADS = [
    {"name": "age", "task": "regress"},
    {"name": "kind", "task": "classify", "labels": "kinds.txt", "outputs": "probabilities"},
    {"name": "tags", "task": "multilabel", "labels": "kinds.txt", "outputs": "probabilities"},
    {"name": "code", "task": "tensors"},
]
OUTPUTS = {
    "age/vector": np.float32([30]),
    "kind/vector": np.float32([0.75, 0.25]),
    "tags/vector": np.float32([0.25, 0.75]),
    "code/output": np.int64([7, 8]),
}
NAMES = {"age": (), "kind": ("cat", "dog"), "tags": ("old", "new"), "code": ()}
COMMON = {
    "age_value", "kind_label", "kind_labels", "kind_scores", "kind_class_ids", "tags_labels", "tags_scores",
    "tags_count", "code_output",
}  # fmt: skip


def task_of(recipe_of: RecipeOf, heads: list[dict[str, Any]], names: Mapping[str, tuple[str, ...]] = NAMES) -> Task:
    recipe = recipe_of(task="heads", labels=None, outputs=None, heads=heads)
    shapes = {role: (None, *array.shape) for role, array in OUTPUTS.items()}
    return choose_task(recipe, shapes, names, dtypes={role: array.dtype for role, array in OUTPUTS.items()})


def answers_of(task: Task) -> dict[str, dict[str, Any]]:
    outputs = {role: tf.constant(array[np.newaxis]) for role, array in OUTPUTS.items()}
    return {
        name: {
            alias: value.numpy()[0]
            for alias, value in zip(
                signature.columns, signature.compute(outputs, tf.constant([[8, 8]], tf.int64)), strict=True
            )
        }
        for name, signature in task.signatures().items()
        if signature.takes == "images"
    }


def compare(task: Task, answers: dict[str, dict[str, Any]], **outputs: np.ndarray) -> Comparison:
    result = NetworkResult(OUTPUTS | {role.replace("_", "/"): array for role, array in outputs.items()}, (8, 8))
    return task.compare(answers, result, task.tolerance)


def test_all_heads_answer_together_and_each_by_itself(recipe_of: RecipeOf) -> None:
    task = task_of(recipe_of, HEADS)
    answers = answers_of(task)
    assert {"serving_default", "age", "kind", "tags", "code"} == answers.keys()
    assert COMMON == answers["serving_default"].keys()
    assert (30, b"cat", b"new", 8) == tuple(
        answers["serving_default"][alias]
        if alias in ("age_value", "kind_label")
        else answers["serving_default"][alias][n]
        for alias, n in (("age_value", 0), ("kind_label", 0), ("tags_labels", 0), ("code_output", 1))
    )
    assert {"label", "labels", "scores", "class_ids"} == answers["kind"].keys()
    comparison = compare(task, answers)
    assert comparison.is_within
    assert "age value 30; kind cat 0.7500; tags new; code output [7, 8]" == comparison.answer


@pytest.mark.parametrize(
    "change",
    [
        {"age_vector": np.float32([31])},
        {"kind_vector": np.float32([0.7, 0.3])},
        {"tags_vector": np.float32([0.25, 0.4])},
        {"code_output": np.int64([7, 9])},
    ],
    ids=lambda change: next(iter(change)),
)
def test_each_head_is_compared_as_its_task_is(recipe_of: RecipeOf, change: dict[str, np.ndarray]) -> None:
    task = task_of(recipe_of, HEADS)
    assert not compare(task, answers_of(task), **change).is_within


def test_what_is_stated_of_the_tolerance_is_for_all_heads(recipe_of: RecipeOf) -> None:
    task = task_of(recipe_of, HEADS[:2])
    answers = answers_of(task)
    near = {"age/vector": np.float32([30.2]), "kind/vector": np.float32([0.745, 0.255])}
    result = NetworkResult(OUTPUTS | near, (8, 8))
    assert task.compare(answers, result, task.tolerance).is_within
    assert not task.compare(answers, result, task.tolerance.replaced(atol=1e-3)).is_within  # of the probabilities
    assert not task.compare(answers, result, task.tolerance.replaced(rtol=1e-3)).is_within  # of the number
    allowed = task.tolerance.describe_for(task.tolerance)
    assert "0.01 + 0.01 of the expected value, for the loosest task of the heads" == allowed


def test_the_signature_of_a_head_and_its_label_are_compared_too(recipe_of: RecipeOf) -> None:
    task = task_of(recipe_of, HEADS)
    answers = answers_of(task)
    answers["age"]["value"] = np.float32(31)
    assert not compare(task, answers).is_within
    answers = answers_of(task)
    answers["kind"]["label"] = b"dog"
    with pytest.raises(VerificationError, match="the SavedModel's label is not the first of its labels"):
        compare(task, answers)


@pytest.mark.parametrize(
    ("heads", "names", "message"),
    [
        (
            HEADS[:2],
            {"age": (), "kind": ("cat",)},
            "head 'kind': the network has 2 classes, but labels 'kinds.txt' have 1",
        ),
        (
            [{**HEADS[0], "output_names": "b"}, {**HEADS[0], "output_names": "c_d"}],
            NAMES,
            "two heads are called 'age'",
        ),
    ],
)
def test_what_does_not_fit_is_explained(
    recipe_of: RecipeOf, heads: list[dict[str, Any]], names: Mapping[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(BakeError, match=message):
        task_of(recipe_of, heads, names)
