"""The preprocessing of a second image in a recipe: the table `[image_2]`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe import Recipe, complete_recipe, read_recipe_file

RecipeOf = Callable[..., Recipe]


def complete(recipe: Recipe, image_2: Any, **known: Any) -> Recipe:
    """Complete a recipe as for a network with two images, of which the source knows `known` about the second."""
    return complete_recipe({"image_2": known}, recipe.with_(image_2=image_2).to_values())


def test_what_the_table_lacks_is_as_for_the_first_image(recipe_of: RecipeOf) -> None:
    recipe = recipe_of(image_2={"crop": "letterbox", "size": "64x32"})
    second = recipe.second_preprocessing
    assert ("letterbox", (64, 32)) == (second.crop, second.size)
    assert recipe.preprocessing == recipe.with_(image_2=None).second_preprocessing
    assert recipe.preprocessing.scale == second.scale


def test_only_what_differs_is_kept_and_what_the_network_needs_is_added(recipe_of: RecipeOf) -> None:
    recipe = recipe_of()
    same = {"crop": recipe.preprocessing.crop}
    assert complete(recipe, same).second_image.image_2 is None
    assert {"size": (9, 8), "scale": "-1..1"} == complete(recipe, {"scale": "-1..1"} | same, size=(9, 8)).to_values()[
        "image_2"
    ]


def test_a_file_has_the_table_alone_or_in_a_recipe(recipe_of: RecipeOf, tmp_path: Path) -> None:
    """A stored recipe returns the same."""
    (tmp_path / "second.toml").write_text('[image_2]\nsize = "64x32"\nantialias = true\n')
    recipe = recipe_of(image_2=str(tmp_path / "second.toml"))
    stored = tmp_path / "assets.extra" / "recipe.toml"
    stored.parent.mkdir()
    stored.write_text(recipe.to_toml())
    assert recipe == Recipe.from_values(read_recipe_file(stored).values)
    assert {"size": (64, 32), "antialias": True} == read_recipe_file(tmp_path / "second.toml").values["image_2"]


@pytest.mark.parametrize(
    ("image_2", "message"),
    [
        ({"like": "keras:VGG16"}, "image_2 has an unknown field 'like'; it can have size, crop, "),
        ({"crop": "x"}, "image_2: invalid crop 'x': must be none, "),
        ({"crop": "short:2"}, "image_2: invalid crop 'short:2': the centre of "),
        (["crop"], "invalid image_2 ['crop']: must be a table with fields of the preprocessing, or"),
        ("missing.toml", "cannot read the image_2 in 'missing.toml': No such file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_table_that_is_not_allowed(recipe_of: RecipeOf, image_2: Any, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_of(image_2=image_2)
    assert str(caught.value).startswith(message)


def test_what_the_network_needs_cannot_be_changed(recipe_of: RecipeOf) -> None:
    with pytest.raises(RecipeError, match=r"^invalid size 7x7: image_2 of .* requires 9x8"):
        complete(recipe_of(), {"size": 7}, size=(9, 8))
    with pytest.raises(RecipeError, match=r"^invalid image_2: the network takes one image; two are --source-input"):
        complete_recipe({}, recipe_of(image_2={"size": 7}).to_values())
