"""Which task a network and its labels have, and how it is stated."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from savedmodel_bakery.errors import BakeError, LabelError, SourceError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks.choose import choose_task
from savedmodel_bakery.exporter.tasks.classify import Binary, Classify, Multilabel
from savedmodel_bakery.exporter.tasks.unlabelled import Embed, Regress

RecipeOf = Callable[..., Recipe]
AB, ABC = ("a", "b"), ("a", "b", "c")
BACKGROUND = "; a network with one more class than labels usually has a background class at id 0"
NO_LABELS = {"labels": None, "outputs": None}


@pytest.mark.parametrize(
    ("units", "names", "values", "task"),
    [
        (3, ABC, {}, Classify(ABC, "probabilities", 5)),
        (2, AB, {}, Classify(AB, "probabilities", 5)),
        (1, AB, {}, Binary(AB, "probabilities", 5, 0.5)),
        (1, AB, {"task": "binary", "threshold": 0.8, "outputs": "logits"}, Binary(AB, "logits", 5, 0.8)),
        (1, AB, {"threshold": 0}, Binary(AB, "probabilities", 5, 0.0)),
        (3, ABC, {"task": "multilabel"}, Multilabel(ABC, "probabilities", 5, (0.5, 0.5, 0.5))),
        (
            3,
            ABC,
            {"task": "multilabel", "threshold": "0.1,0.2,0.3"},
            Multilabel(ABC, "probabilities", 5, (0.1, 0.2, 0.3)),
        ),
        (8, (), {**NO_LABELS, "task": "embed", "normalise": "l2"}, Embed(8, "l2")),
        (1, (), {**NO_LABELS, "task": "embed"}, Embed(1, "none")),
        (1, (), NO_LABELS, Regress(("value",))),
        (2, (), {**NO_LABELS, "task": "regress", "output_names": "width, height"}, Regress(("width", "height"))),
        (1, (), {**NO_LABELS, "task": "regress", "output_names": "age", "units": "years"}, Regress(("age",))),
    ],
)
def test_a_task_is_stated_or_follows_from_the_number_of_outputs(
    recipe_of: RecipeOf, units: int, names: tuple[str, ...], values: dict[str, Any], task: object
) -> None:
    assert task == choose_task(recipe_of(**values), {"vector": (None, units)}, names)


def test_a_network_that_ends_in_a_sigmoid_per_label_is_multilabel(recipe_of: RecipeOf) -> None:
    stated = recipe_of(task="classify")
    assert isinstance(choose_task(recipe_of(), {"vector": (None, 3)}, ABC, ends_in_sigmoid=True), Multilabel)
    assert isinstance(choose_task(stated, {"vector": (None, 3)}, ABC, ends_in_sigmoid=True), Classify)


@pytest.mark.parametrize(
    ("width", "count", "hint"),
    [(1001, 1000, BACKGROUND), (1000, 1001, ""), (10, 1000, "")],
    ids=["background missing", "one too many", "another label set"],
)
def test_a_wrong_number_of_labels_is_reported_with_the_number_of_classes(
    recipe_of: RecipeOf, width: int, count: int, hint: str
) -> None:
    with pytest.raises(LabelError) as rejected:
        choose_task(recipe_of(), {"vector": (None, width)}, ["x"] * count)
    assert f"the network has {width} classes, but labels 'names.txt' have {count}{hint}" == str(rejected.value)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "", "c"], "labels 'names.txt' have 2 names but none for class id 1: ids must count from 0 without gaps"),
        (["", "a"], "labels 'names.txt' have 1 names but none for class id 0: ids must count from 0 without gaps"),
    ],
    ids=["gap", "from one"],
)
def test_names_need_ids_from_zero_without_gaps(recipe_of: RecipeOf, names: list[str], message: str) -> None:
    with pytest.raises(LabelError, match=re.escape(message)):
        choose_task(recipe_of(), {"vector": (None, 3)}, names)


@pytest.mark.parametrize(
    ("units", "names", "values", "message"),
    [
        (1, "abc", {}, "the network has one output, which decides between two labels, but labels 'names.txt' have 3"),
        (2, "ab", {"task": "binary"}, "task binary needs a network with one output; this one has 2"),
        (1, "a", {"task": "classify"}, "task classify needs a network with one output per label; this one has 1"),
        (1, "a", {"task": "multilabel"}, "task multilabel needs a network with one output per label; this one has 1"),
        (2, "abc", {"task": "multilabel"}, "the network has 2 classes, but labels 'names.txt' have 3"),
        (3, "abc", {"threshold": 0.5}, "invalid threshold '0.5': task classify has none, only binary, multilabel"),
        (1, "ab", {"threshold": "0.5,0.6"}, "invalid threshold '0.5,0.6': 2 numbers; must be one"),
        (3, "abc", {"task": "multilabel", "threshold": "0,1"}, "invalid threshold '0,1': 2 numbers; must be one, or 3"),
        (1, "ab", {"threshold": 1.5}, "invalid threshold 1.5: must be a number from 0 to 1"),
        (1, "ab", {"threshold": True}, "invalid threshold True: must be a number from 0 to 1"),
        (3, "", NO_LABELS, "the network has 3 outputs: pass --labels and --outputs if each belongs to a label"),
        (
            8,
            "",
            {"task": "embed"},
            "invalid labels 'names.txt': task embed has none, only classify, binary, multilabel",
        ),
        (1, "", {**NO_LABELS, "normalise": "l2"}, "invalid normalise 'l2': task regress has none, only embed"),
        (2, "", {**NO_LABELS, "task": "regress"}, "the network has 2 outputs: pass as many names with --output-names"),
        (1, "", {**NO_LABELS, "output_names": "a,b"}, "invalid output_names 'a,b': 2 names; must be 1"),
        (1, "", {**NO_LABELS, "output_names": "ok"}, "invalid output_names 'ok': must be different names with commas"),
        (2, "", {**NO_LABELS, "output_names": ["a", "b"]}, "must be different names with commas, such as width,height"),
        (2, "", {**NO_LABELS, "units": ["m", "kg"]}, "must be text with a comma between units, such as m,kg"),
        (3, "aba", {"task": "multilabel"}, "labels 'names.txt' have 'a' twice: task multilabel needs different names"),
        (1, "", {**NO_LABELS, "units": "m,kg"}, "invalid units 'm,kg': must be 1, one per output"),
        (1, "", {"task": "classify", "labels": None}, "tiny needs --labels: it cannot be inferred from the model"),
    ],
)
def test_what_does_not_fit_is_explained(
    recipe_of: RecipeOf, units: int, names: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(BakeError, match=re.escape(message)):
        choose_task(recipe_of(**values), {"vector": (None, units)}, list(names))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"boxes": (None, None, 4)},
            r"'boxes' of the network of \S+ has the shape \[None, 4\] per image",
        ),
        ({"ok": (None, 4)}, "the network has an output 'ok', which every answer has: rename it"),
    ],
)
def test_tensors_need_fixed_shapes_and_other_names(recipe_of: RecipeOf, shapes: dict[str, Any], message: str) -> None:
    recipe = recipe_of(task="tensors", **NO_LABELS)
    with pytest.raises(SourceError, match=message):
        choose_task(recipe, shapes, [], dtypes=dict.fromkeys(shapes, np.dtype("f4")))
