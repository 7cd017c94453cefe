"""Chooses the task of a recipe, or infers it from the network and the labels."""

from __future__ import annotations

from collections.abc import Sequence

from savedmodel_bakery.exporter import labels
from savedmodel_bakery.exporter.errors import LabelError, RecipeError, SourceError
from savedmodel_bakery.exporter.recipe import Answers
from savedmodel_bakery.exporter.recipe.answers import parse_names, parse_thresholds, parse_units
from savedmodel_bakery.exporter.tasks.binary import Binary
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.tasks.embed import Embed
from savedmodel_bakery.exporter.tasks.multilabel import Multilabel
from savedmodel_bakery.exporter.tasks.regress import Regress
from savedmodel_bakery.exporter.tasks.task import Task

_DEFAULT_THRESHOLD = "0.5"
_DEFAULT_OUTPUT_NAME = "value"


def choose_task(answers: Answers, units: int, class_names: Sequence[str], *, ends_in_sigmoid: bool = False) -> Task:
    """Return the task of a network.

    Args:
        answers: of the recipe; states the task, or doesn't.
        units: the number of the network's outputs per image.
        class_names: in the order of class ids; empty without labels.
        ends_in_sigmoid: whether a sigmoid is the network's last operation.

    Raises:
        SourceError: the network doesn't fit the stated task.
        LabelError: the labels don't fit the task.
        RecipeError: the recipe lacks a value, or states one that the task doesn't have.
    """
    name = answers.task or _infer(units, class_names, ends_in_sigmoid=ends_in_sigmoid)
    answers.check_task(name)
    if name == "embed":
        return Embed(units, answers.normalise or "none")
    if name == "regress":
        if answers.units is not None and len(parse_units(answers.units)) != units:
            raise RecipeError(f"invalid units {answers.units!r}: must be {units}, one per output")
        return Regress(_output_names(answers, units))
    if answers.labels is None or answers.outputs is None:
        raise RecipeError(f"task {name} needs --labels and --outputs; tasks embed and regress need none")
    if name == "binary":
        if units != 1:
            raise SourceError(f"task binary needs a network with one output; this one has {units}: use --task classify")
        if len(class_names) != 2:
            raise LabelError(
                "the network has one output, which decides between two labels, but labels "
                f"{answers.labels!r} have {len(class_names)}"
            )
        (threshold,) = _thresholds(answers, 1)
        return Binary(tuple(class_names), answers.outputs, answers.top_k, threshold)
    if units == 1:
        raise SourceError(f"task {name} needs a network with one output per label; this one has 1: use --task binary")
    labels.check_width(class_names, answers.labels, units)
    if name == "multilabel":
        twice = next((label for number, label in enumerate(class_names) if label in class_names[:number]), None)
        if twice is not None:
            raise LabelError(f"labels {answers.labels!r} have {twice!r} twice: task multilabel needs different names")
        return Multilabel(tuple(class_names), answers.outputs, answers.top_k, _thresholds(answers, units))
    return Classify(tuple(class_names), answers.outputs, answers.top_k)


def _infer(units: int, class_names: Sequence[str], *, ends_in_sigmoid: bool) -> str:
    if units == 1:
        return "binary" if class_names else "regress"
    if not class_names:
        raise RecipeError(
            f"the network has {units} outputs: pass --labels and --outputs if each belongs to a label, otherwise "
            "--task embed or --task regress"
        )
    return "multilabel" if ends_in_sigmoid else "classify"


def _thresholds(answers: Answers, count: int) -> tuple[float, ...]:
    thresholds = parse_thresholds(answers.threshold or _DEFAULT_THRESHOLD)
    if len(thresholds) not in (1, count):
        allowed = "one" if count == 1 else f"one, or {count}"
        raise RecipeError(f"invalid threshold {answers.threshold!r}: {len(thresholds)} numbers; must be {allowed}")
    return thresholds if len(thresholds) == count else thresholds * count


def _output_names(answers: Answers, units: int) -> tuple[str, ...]:
    if answers.output_names is None:
        if units == 1:
            return (_DEFAULT_OUTPUT_NAME,)
        raise RecipeError(f"the network has {units} outputs: pass as many names with --output-names")
    names = parse_names(answers.output_names)
    if len(names) != units:
        raise RecipeError(f"invalid output_names {answers.output_names!r}: {len(names)} names; must be {units}")
    return names
