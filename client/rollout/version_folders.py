"""Finds the folders of a model's versions on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.wire.version_folder import version_number


def list_versions(base_path: Path) -> list[tuple[int, Path]]:
    """Return the versions under a base path with their folders, lowest first; two folders may have the same number.

    Raises:
        RolloutError: the folder does not exist, or cannot be read.
    """
    try:
        names = sorted((entry.name for entry in base_path.iterdir() if entry.is_dir()), key=os.fsencode)
    except OSError as error:
        raise RolloutError(f"cannot read the folder of versions {base_path}: {error.strerror}") from error
    numbers = ((version_number(name), base_path / name) for name in names)
    return sorted(((number, path) for number, path in numbers if number is not None), key=lambda version: version[0])


def find_version(base_path: Path, version: int) -> Path:
    """Return the folder of a version; of several with its number the one that servers take.

    Raises:
        RolloutError: there is none.
    """
    versions = dict(list_versions(base_path))
    if version not in versions:
        numbers = ", ".join(map(str, versions)) or "none"
        raise RolloutError(f"version {version} not found in {base_path}; its versions: {numbers}")
    return versions[version]
