"""Which task a network and its labels have, and how it is stated."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from savedmodel_bakery.exporter.errors import BakeError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tasks import choose_task
from savedmodel_bakery.exporter.tasks.binary import Binary
from savedmodel_bakery.exporter.tasks.classify import Classify

RecipeOf = Callable[..., Recipe]


@pytest.mark.parametrize(
    ("units", "names", "values", "task"),
    [
        (3, "abc", {}, Classify("probabilities")),
        (2, "ab", {}, Classify("probabilities")),
        (1, "ab", {}, Binary("probabilities", 0.5)),
        (1, "ab", {"task": "binary", "threshold": 0.8, "outputs": "logits"}, Binary("logits", 0.8)),
        (1, "ab", {"threshold": 0}, Binary("probabilities", 0.0)),
    ],
)
def test_a_network_with_one_output_is_binary(
    recipe_of: RecipeOf, units: int, names: str, values: dict[str, Any], task: object
) -> None:
    assert task == choose_task(recipe_of(**values).answers, units, names)


@pytest.mark.parametrize(
    ("units", "names", "values", "message"),
    [
        (1, "abc", {}, "the network has one output, which decides between two labels, but labels 'names.txt' have 3"),
        (2, "ab", {"task": "binary"}, "task binary needs a network with one output; this one has 2"),
        (1, "a", {"task": "classify"}, "task classify needs a network with one output per label; this one has 1"),
        (3, "abc", {"threshold": 0.5}, "invalid threshold 0.5: task classify has no threshold, only binary has"),
        (1, "ab", {"threshold": 1.5}, "invalid threshold 1.5: must be a number from 0 to 1"),
        (1, "ab", {"threshold": True}, "invalid threshold True: must be a number from 0 to 1"),
    ],
)
def test_what_does_not_fit_is_explained(
    recipe_of: RecipeOf, units: int, names: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(BakeError, match=re.escape(message)):
        choose_task(recipe_of(**values).answers, units, names)
