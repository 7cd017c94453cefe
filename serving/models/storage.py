"""Lists the version folders under a base path and selects those that the version policy wants."""

from __future__ import annotations

import os
import re
from pathlib import Path

from savedmodel_bakery.serving.options.model_config import All, Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError

_MIN_VERSION, _MAX_VERSION = -(2**63), 2**63 - 1
_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")


def wanted_versions(config: ModelConfig) -> dict[int, Path]:
    """Return the versions on disk that should be served: their folders by version number.

    Raises:
        StatusError: NOT_FOUND if the base path can't be listed.
    """
    try:
        names = sorted((entry.name for entry in config.folder.iterdir()), key=os.fsencode)
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        raise StatusError(
            Code.NOT_FOUND,
            f"Could not find base path {config.base_path} for servable {config.name} with error {reason}",
        ) from error
    # If two names have the same number, such as 1 and 01, the last in byte order counts.
    folders = {
        number: config.folder / name
        for name in names
        if _NUMBER.fullmatch(name) and _MIN_VERSION <= (number := int(name)) <= _MAX_VERSION
    }
    return {number: folders[number] for number in _select(sorted(folders), config.policy)}


def _select(versions: list[int], policy: Policy) -> list[int]:
    match policy:
        case All():
            return versions
        case Latest(count):
            return versions[-count:]
        case Specific(wanted):
            return [version for version in versions if version in wanted]
