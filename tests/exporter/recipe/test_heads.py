"""Heads in a recipe: their tables, the recipe of each, and their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import Recipe, read_recipe_file

AGE = {"name": "age", "task": "regress"}
KIND = {"name": "kind", "output": "scores", "task": "classify", "labels": "kinds.txt", "outputs": "logits"}
RecipeOf = Callable[..., Recipe]


def with_heads(recipe_of: RecipeOf, *heads: Any, **values: Any) -> Recipe:
    return recipe_of(**{"task": "heads", "labels": None, "outputs": None, "heads": list(heads)} | values)


def test_each_head_has_a_recipe(recipe_of: RecipeOf) -> None:
    recipe = with_heads(recipe_of, AGE, KIND)
    age, kind = recipe.by_head["age"], recipe.by_head["kind"]
    assert ("regress", "age", recipe.preprocessing) == (age.answers.task, age.source.source_output, age.preprocessing)
    assert ("scores", "kinds.txt", "logits") == (kind.source.source_output, kind.answers.labels, kind.answers.outputs)
    assert {} == kind.by_head


def test_a_file_has_the_heads_alone_or_in_a_recipe(recipe_of: RecipeOf, tmp_path: Path) -> None:
    """Paths of labels refer to the folder of the file; a stored recipe returns the same."""
    (tmp_path / "heads.toml").write_text(
        '[[heads]]\nname = "kind"\ntask = "classify"\nlabels = "kinds.txt"\noutputs = "logits"\n'
    )
    recipe = recipe_of(task="heads", labels=None, outputs=None, heads=str(tmp_path / "heads.toml"))
    labels = recipe.by_head["kind"].answers.labels
    assert tmp_path / "kinds.txt" == Path(labels or "").resolve()
    stored = tmp_path / "assets.extra" / "recipe.toml"
    stored.parent.mkdir()
    stored.write_text(recipe.to_toml())
    assert recipe == Recipe.from_values(read_recipe_file(stored).values)
    (tmp_path / "recipe.toml").write_text((tmp_path / "heads.toml").read_text())
    (head,) = read_recipe_file(tmp_path / "recipe.toml").values["heads"]
    assert labels == head.values["labels"]


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([], "invalid heads []: must be tables with a name"),
        (["age"], "invalid heads ['age']: must be tables with a name"),
        (
            [{"task": "regress"}],
            "invalid name None of a head: must be a letter, then letters, digits or _, other than classify, ",
        ),
        ([{**AGE, "name": "top_k"}], "invalid name 'top_k' of a head"),
        ([{**AGE, "name": "âge"}], "invalid name 'âge' of a head"),
        ([{**AGE, "name": "heads"}], "invalid name 'heads' of a head"),
        ([AGE, AGE], "two heads are called 'age': their names must differ"),
        ([{**AGE, "output": 3}], "invalid output 3 of head 'age': must be the name of an output of the network"),
        ([{"name": "age"}], "head 'age' needs a task: one of classify, binary, "),
        ([{**AGE, "task": "heads"}], "head 'age' needs a task: one of classify, binary, "),
        ([{**AGE, "crop": "none"}], "head 'age' has an unknown field 'crop'; a head has name, output, task, "),
        ([{**AGE, "task": "guess"}], "head 'age': invalid task 'guess': must be one of"),
        ([{**AGE, "labels": "a.txt"}], "head 'age': invalid labels 'a.txt': task regress has none"),
        ([{"name": "box", "task": "detect", "labels": "a.txt"}], "head 'box' needs outputs, boxes and box_unit"),
        ("missing.toml", "cannot read the heads in 'missing.toml': "),
    ],
)
def test_what_is_wrong_with_a_head(recipe_of: RecipeOf, heads: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(task="heads", labels=None, outputs=None, heads=heads)
    assert message in str(caught.value)


def test_what_is_none_counts_as_not_stated(recipe_of: RecipeOf) -> None:
    assert "labels" not in with_heads(recipe_of, {**AGE, "labels": None}).to_toml()


def test_a_recipe_file_has_tables_itself(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('heads = "recipe.toml"\n')
    with pytest.raises(
        RecipeError, match=r"invalid heads 'recipe\.toml': must be tables \[\[heads\]\] in a recipe file"
    ):
        read_recipe_file(tmp_path / "recipe.toml")


def test_task_and_heads_need_each_other(recipe_of: RecipeOf) -> None:
    with pytest.raises(RecipeError, match="needs --heads"):
        recipe_of(task="heads", labels=None, outputs=None)
    with pytest.raises(RecipeError, match="task classify has none, only heads"):
        with_heads(recipe_of, AGE, task="classify", labels="a.txt", outputs="logits")
