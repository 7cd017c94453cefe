"""Reads and writes recipes as flat TOML files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from savedmodel_bakery.exporter.errors import RecipeError
from savedmodel_bakery.exporter.recipe.recipe import Recipe, check_names


def format_toml(values: Mapping[str, Any]) -> str:
    """Format values of recipe fields as TOML; None is left out."""
    import tomli_w

    return tomli_w.dumps(
        {name: Recipe.FIELDS[name].declaration.to_plain(value) for name, value in values.items() if value is not None}
    )


def read_toml(path: Path) -> dict[str, Any]:
    """Read the values of a recipe file, which may state only some of the fields.

    Raises:
        RecipeError: the file can't be read, is not valid TOML, or has an unknown field or a value that is not allowed.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"cannot read the recipe file {path}: {error}") from error
    try:
        check_names(values)
        return {name: Recipe.FIELDS[name].convert(value) for name, value in values.items()}
    except RecipeError as error:
        raise RecipeError(f"recipe file {path}: {error}") from error
