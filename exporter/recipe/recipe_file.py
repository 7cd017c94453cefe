"""Reads recipe files: TOML with fields of a recipe, and the name of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter.recipe.fields import Field, PathOrName, Text
from savedmodel_bakery.exporter.recipe.recipe import Recipe, convert_values
from savedmodel_bakery.small_files import read_small
from savedmodel_bakery.toml import parse_toml
from savedmodel_bakery.wire import version_folder

_NAME = Field("name", None, Text(), "Name to serve the model under.")


class RecipeFile(NamedTuple):
    """The content of a recipe file.

    Attributes:
        name: the name to serve the model under; None if the file doesn't state it.
        values: values of some of the recipe's fields, by name.
    """

    name: str | None
    values: dict[str, Any]


def read_recipe_file(path: Path) -> RecipeFile:
    """Read a recipe file, which may state only some of the fields.

    Relative paths in a file refer to its folder; they are returned relative to the working directory. Those of a recipe
    that is stored in a version refer to the working directory already.

    Raises:
        RecipeError: the file can't be read, is not valid TOML, or has an unknown field or a value that is not allowed.
    """
    try:
        content = parse_toml(read_small(path).decode())
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the recipe file {path}: {error}") from error
    try:
        name = _NAME.convert(content.pop("name", None))
        values = convert_values(content)
    except RecipeError as error:
        raise RecipeError(f"recipe file {path}: {error}") from error
    if path.resolve().parts[-2:] != version_folder.RECIPE.parts:
        for name_of_field, value in values.items():
            if isinstance(paths := Recipe.FIELDS[name_of_field].values, PathOrName):
                values[name_of_field] = paths.resolve(value, path.parent)
    return RecipeFile(name, values)
