"""Reads the signatures, recipe and size of a published version, without loading the model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.publish import FUNCTION_FILE, PIPELINE_FILE, RECIPE_FILE
from savedmodel_bakery.exporter.recipe import read_recipe_file
from savedmodel_bakery.exporter.signatures import Signature, read_signatures
from savedmodel_bakery.exporter.tested_runtimes import oldest_version
from savedmodel_bakery.toml import parse_toml


@dataclass(frozen=True)
class Inspection:
    """Contents of a version's folder.

    Attributes:
        path: the folder.
        size_bytes: of all its files.
        weights_bytes: of the files with variables.
        signatures: sorted by name.
        recipe: the TOML text it was baked with, of a classifier, a function or a pipeline; None if it was not baked
            here.
        oldest_tensorflow: the oldest version of TensorFlow in which bakes with its options were tested; None if they
            were not.
    """

    path: Path
    size_bytes: int
    weights_bytes: int
    signatures: list[Signature]
    recipe: str | None
    oldest_tensorflow: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as values for JSON; the recipe is an object."""
        recipe = parse_toml(self.recipe) if self.recipe else None
        return {**dataclasses.asdict(self), "path": str(self.path), "recipe": recipe}


def inspect(path: Path) -> Inspection:
    """Read a version's folder.

    Raises:
        PublishError: the folder has no SavedModel, or a damaged one, or the recipe is not valid TOML.
    """
    recipe_file = next(
        (path / name for name in (RECIPE_FILE, FUNCTION_FILE, PIPELINE_FILE) if (path / name).is_file()), None
    )
    recipe = recipe_file.read_text(encoding="utf-8") if recipe_file else None
    signatures = read_signatures(path)
    try:
        oldest_tensorflow = oldest_version(parse_toml(recipe)) if recipe else None
    except ValueError as error:
        raise PublishError(f"the recipe in {path} is damaged: {error}") from error
    return Inspection(path, size_of(path), size_of(path / "variables"), signatures, recipe, oldest_tensorflow)


def read_recipe(version: Path) -> dict[str, Any]:
    """Return the values of the recipe that a classifier was baked with, by name of the field.

    Raises:
        PublishError: the folder has no recipe of a classifier.
        RecipeError: the recipe is damaged.
    """
    for file, content in ((FUNCTION_FILE, "a function"), (PIPELINE_FILE, "a pipeline")):
        if (version / file).is_file():
            raise PublishError(
                f"{version} contains {content}, which has no photos to compare: pass the folder of a version that "
                "`bakery bake` made"
            )
    if not (version / RECIPE_FILE).is_file():
        raise PublishError(f"no {RECIPE_FILE} in {version}: give the folder of a version that was baked here")
    return read_recipe_file(version / RECIPE_FILE).values


def size_of(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def format_size(size_bytes: int) -> str:
    """Return a size for people, such as `1.5 MB`."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"
