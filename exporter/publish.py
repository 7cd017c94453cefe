"""Names a model, and publishes a version of it: saves, validates and renames it into place.

<root>/<name>/<version>/
    saved_model.pb, variables/     what a server loads
    assets.extra/recipe.toml       how it was baked; function.toml for a function, pipeline.toml for a pipeline
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.recipe import read_recipe_file
from savedmodel_bakery.storage.folders import rename_into_place, staging, writing
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.storage.versions import opened, published_versions
from savedmodel_bakery.wire import version_folder

RECIPE_FILE = version_folder.RECIPE
FUNCTION_FILE = Path("assets.extra") / "function.toml"
PIPELINE_FILE = Path("assets.extra") / "pipeline.toml"
PARITY_FILE = Path("assets.extra") / "parity.json"

T = TypeVar("T")


def model_name(version: Path) -> str:
    """Return the name of the model of a version's folder: that of its base path; its own if it is not a number."""
    folder = version.resolve()
    return folder.parent.name if folder.name.isdecimal() else folder.name


def format_size(size_bytes: int) -> str:
    """Return a size for people, such as `1.5 MB`."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"


def default_name(model: str) -> str:
    """Derive a name to serve a model under: `efficientnet_lite0` for `efficientnet-lite0`, `flowers` for a file."""
    parts = [part for part in Path(model.rpartition(":")[2]).parts if not part.isdecimal()]  # without the version
    stem = re.sub(r"\.(keras|h5|onnx)$", "", parts[-1]) if parts else ""
    return re.sub(r"\W+", "_", stem).strip("_") or "model"


def check_same_model(base: Path | Store, model: str) -> None:
    """Reject a model that would replace another one: raise PublishError if the newest version in `base` is of another.

    Versions without a recipe are of no model.
    """
    versions = published_versions(base)
    if not versions:
        return
    with opened(versions[max(versions)], {RECIPE_FILE}) as version:
        file = version / RECIPE_FILE
        served = read_recipe_file(file).values.get("model") if file.is_file() else None
    if served not in (None, model):
        raise PublishError(f"{base} already serves {served}; choose another name for {model} with --name")


def publish_version(
    base_path: Path,
    version: int | None,
    *,
    save: Callable[[Path], None],
    description: tuple[Path, str],
    validate: Callable[[Path], T],
) -> tuple[Path, T]:
    """Save a SavedModel in a staging folder, validate it there, and rename it to its version.

    Args:
        base_path: the folder of the numbered versions.
        version: its number; None is the next one.
        save: writes the SavedModel to a path that doesn't exist yet.
        description: a file that states how it was baked, by its path in the version, and its text.
        validate: checks the staged version and records the results in it. An error, which is raised unchanged, keeps
            the version from being published.
    """
    with staging(base_path) as stage:
        staged = stage / "version"
        with writing(base_path):
            save(staged)
            file, text = description
            (staged / file).parent.mkdir()
            (staged / file).write_text(text, encoding="utf-8")
        result = validate(staged)
        return rename_into_place(staged, base_path, version), result
