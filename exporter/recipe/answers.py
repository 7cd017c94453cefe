"""Answers: what the network's outputs mean, and what the servable answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated

from savedmodel_bakery.exporter.recipe.fields import Choice, FieldGroup, Parsed, PathOrName, WholeNumber

LABELLED_TASKS = ("classify", "binary", "multilabel", "detect", "segment")
TASKS_WITH_TOP_K = ("classify", "binary", "multilabel")
TASKS_WITHOUT_LABELS = ("embed", "regress")
_NAME = re.compile(r"[^\W\d][\w.-]*")


def parse_thresholds(text: str) -> tuple[float, ...]:
    """Parse one probability, or several with commas.

    Raises:
        ValueError: with the allowed values.
    """
    try:
        thresholds = tuple(map(float, text.split(",")))
    except ValueError:
        thresholds = (-1.0,)
    if not all(0 <= threshold <= 1 for threshold in thresholds):
        raise ValueError("must be a number from 0 to 1, or one per label with commas")
    return thresholds


def parse_names(text: str) -> tuple[str, ...]:
    """Parse different names with commas.

    Raises:
        ValueError: with the allowed values.
    """
    names = tuple(name.strip() for name in text.split(","))
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names) or {"ok", "error"} & set(names):
        raise ValueError("must be different names with commas, such as width,height, other than ok and error")
    return names


def parse_units(text: str) -> tuple[str, ...]:
    """Parse units with commas.

    Raises:
        ValueError: with the allowed values.
    """
    units = tuple(unit.strip() for unit in text.split(","))
    if not all(units) or set(text) & set("[]'\""):
        raise ValueError("must be text with a comma between units, such as m,kg")
    return units


@dataclass(frozen=True, kw_only=True)
class Answers(FieldGroup):
    """What the network's outputs mean, and what the servable answers."""

    TASKS_WITH = MappingProxyType(
        {
            "labels": LABELLED_TASKS,
            "outputs": LABELLED_TASKS,
            "threshold": ("binary", "multilabel", "detect"),
            "normalise": ("embed",),
            "output_names": ("regress",),
            "units": ("regress",),
        }
    )

    task: Annotated[
        str | None,
        Choice(
            choices=(*LABELLED_TASKS, *TASKS_WITHOUT_LABELS),
            when_unset="inferred: with one output binary, or without labels regress; otherwise multilabel after a "
            "sigmoid, else classify; detect if the outputs have the names of boxes and scores",
            help="What the outputs mean: classify is one of several labels; binary is one of two, with one output for "
            "the second; multilabel is any number of labels; detect is boxes with labels; segment is a label per "
            "pixel; embed is a vector; regress is one number or several.",
        ),
    ] = None
    labels: Annotated[
        str | None,
        PathOrName(
            names="imagenet|imagenet1001",
            metavar="SET|FILE",
            when_unset="required for tasks with labels",
            help="A label set that comes with the exporter (imagenet, imagenet1001) or a .txt, .json, .csv or .pbtxt "
            "file.",
        ),
    ] = None
    outputs: Annotated[
        str | None,
        Choice(
            choices=("probabilities", "logits"),
            when_unset="required for tasks with labels, other than segment",
            help="Values that the network returns; a softmax is added to logits, or for tasks binary and multilabel a "
            "sigmoid.",
        ),
    ] = None
    top_k: Annotated[
        int,
        WholeNumber(
            minimum=1, metavar="K", help="Number of labels in a response, or all classes if there are fewer than that."
        ),
    ] = 5
    threshold: Annotated[
        str | None,
        Parsed(
            parse=parse_thresholds,
            metavar="PROBABILITY",
            when_unset="0.5",
            help="The probability from which on the answer is the second label of task binary, or has a label of task "
            "multilabel or a box of task detect; for multilabel also one per label, with commas.",
        ),
    ] = None
    normalise: Annotated[
        str | None,
        Choice(
            choices=("none", "l2"),
            when_unset="none",
            help="With task embed, l2 divides each vector by its length.",
        ),
    ] = None
    output_names: Annotated[
        str | None,
        Parsed(
            parse=parse_names,
            metavar="NAME,…",
            when_unset="value for a single number",
            help="With task regress, the names of the numbers.",
        ),
    ] = None
    units: Annotated[
        str | None,
        Parsed(
            parse=parse_units,
            metavar="UNIT,…",
            when_unset="none",
            help="With task regress, the units of the numbers, for people who read the recipe.",
        ),
    ] = None

    def _check_combination(self) -> None:
        self.check_task(self.task)
