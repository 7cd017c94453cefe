"""Lists the version folders under a base path and selects those that the version policy wants."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from savedmodel_bakery.wire.model_config import Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.version_folder import version_number


def find_model(folder: Path, name: str | None = None) -> ModelConfig:
    """Return the configuration of the model in a folder: the newest of its versions, or the version that it is.

    By default, its name is that of the folder of versions. Raises ValueError if there is no version.
    """
    if not folder.is_dir():
        raise ValueError(f"folder not found: {folder}")
    if (folder / "saved_model.pb").exists():
        path = Path(os.path.abspath(folder))  # noqa: PTH100 - a link to a version has the version's number
        number = version_number(path.name)
        if number is None:
            raise ValueError(f"{folder} has a SavedModel, but is not named as a version: rename it to {folder}/1")
        base_path = path.parent.resolve()
        return ModelConfig(name or base_path.name, str(base_path), Specific(frozenset([number])))
    if not any(path.is_dir() and version_number(path.name) is not None for path in folder.iterdir()):
        models = sorted(path.parents[1] for path in folder.glob("*/*/saved_model.pb"))
        advice = f"; pass the folder of one model: {models[0]}" if models else ""
        raise ValueError(f"{folder} contains no version; versions are folders named 1, 2, 3, …{advice}")
    base_path = folder.resolve()
    return ModelConfig(name or base_path.name, str(base_path))


def wanted_versions(config: ModelConfig) -> dict[int, Path]:
    """Return the folders of the versions that should be served; NOT_FOUND if the base path can't be listed."""
    try:
        names = sorted((entry.name for entry in config.folder.iterdir()), key=os.fsencode)
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        raise StatusError(
            Code.NOT_FOUND,
            f"Could not find base path {config.base_path} for servable {config.name} with error {reason}",
        ) from error
    # If two names have the same number, such as 1 and 01, the last in byte order counts.
    folders = {number: config.folder / name for name in names if (number := version_number(name)) is not None}
    return {number: folders[number] for number in select(config.policy, folders)}


def select(policy: Policy, versions: Iterable[int]) -> list[int]:
    """Return the numbers among `versions` that a policy wants, lowest first."""
    numbers = sorted(versions)
    match policy:
        case Latest(count):
            return numbers[-count:]
        case Specific(wanted):
            return [number for number in numbers if number in wanted]
    return numbers
