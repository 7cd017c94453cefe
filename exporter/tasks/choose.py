"""Chooses the task of a recipe, or infers it from the network and the labels."""

from __future__ import annotations

from collections.abc import Sequence

from savedmodel_bakery.exporter import labels
from savedmodel_bakery.exporter.errors import LabelError, RecipeError, SourceError
from savedmodel_bakery.exporter.recipe import Answers
from savedmodel_bakery.exporter.tasks.binary import DEFAULT_THRESHOLD, Binary
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.task import Task


def choose_task(answers: Answers, units: int, class_names: Sequence[str]) -> Task:
    """Return the task of a network.

    Args:
        answers: states the task, or doesn't: then a network with one output is `binary`, any other `classify`.
        units: the number of the network's outputs per image.
        class_names: in the order of class ids.

    Raises:
        SourceError: the network doesn't fit the stated task.
        LabelError: the labels don't fit the task.
        RecipeError: the recipe states a value that the task doesn't have.
    """
    if (answers.task or ("binary" if units == 1 else "classify")) == "binary":
        if units != 1:
            raise SourceError(f"task binary needs a network with one output; this one has {units}: use --task classify")
        if len(class_names) != 2:
            raise LabelError(
                "the network has one output, which decides between two labels, but labels "
                f"{answers.labels!r} have {len(class_names)}"
            )
        return Binary(answers.outputs, DEFAULT_THRESHOLD if answers.threshold is None else answers.threshold)
    if units == 1:
        raise SourceError("task classify needs a network with one output per label; this one has 1: use --task binary")
    labels.check_width(class_names, answers.labels, units)
    if answers.threshold is not None:
        raise RecipeError(f"invalid threshold {answers.threshold}: task classify has no threshold, only binary has")
    return Classify(answers.outputs)
