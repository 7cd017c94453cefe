"""Removes the folders of old versions, but none that the config file or a server needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from savedmodel_bakery.client.rollout.config_file import ConfigFile
from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.client.rollout.servers import ModelServer
from savedmodel_bakery.wire.model_config import All, Latest, ModelConfig, Specific

_PREFIX = ".pruned-"  # servers ignore a folder whose name is not a number

Reasons = dict[int, str]
"""Why versions are needed, by number."""


def find_reasons(file: ConfigFile, model: str, servers: Sequence[ModelServer], versions: Iterable[int]) -> Reasons:
    """Return which versions are needed, by any model with the same base path.

    Args:
        file: the config file, locked by this process.
        model: name of the model.
        servers: all servers that load versions from the base path.
        versions: the versions that exist.

    Raises:
        RolloutError: all versions are needed, or a server does not serve the model.
        ClientError: a server cannot be reached, or refuses.
    """
    base_path = os.path.realpath(file.model(model).folder)
    models = [config for config in file.models(file.text).values() if os.path.realpath(config.folder) == base_path]
    reasons: Reasons = {}
    for server in servers:
        for config in models:
            state = server.read(config.name)
            if config.name == model and not state.versions:
                raise RolloutError(f'{server.name} does not serve model "{model}": no version was removed')
            for status in state.versions:
                if status.state != "END" and status.version is not None:
                    reasons[status.version] = f"{status.state} on {server.name}"
    for config in models:
        reasons |= _named(config, versions, file)
    return reasons


def _named(config: ModelConfig, versions: Iterable[int], file: ConfigFile) -> Reasons:
    """Return the versions that the configuration of a model names."""
    match config.policy:
        case All():
            raise RolloutError(f'model "{config.name}" has the policy all in {file}: no version was removed')
        case Latest(count):
            reasons = dict.fromkeys(sorted(versions)[-count:], f"among the latest {count} that {file} names")
        case Specific(named):
            reasons = dict.fromkeys(named, f"named in {file}")
    return reasons | {version: f"label {label} in {file}" for label, version in config.labels.items()}


def remove_version(path: Path) -> None:
    """Remove the folder of a version. A server never finds a part of it, also if this process is killed.

    Raises:
        RolloutError: it cannot be removed.
    """
    try:
        _remove(path.rename(path.with_name(f"{_PREFIX}{path.name}")))
    except OSError as error:
        raise RolloutError(f"cannot remove {path}: {error.strerror}") from error


def remove_rests(base_path: Path) -> None:
    """Remove what an earlier process that was killed has left.

    Raises:
        RolloutError: it cannot be removed.
    """
    for rest in base_path.glob(f"{_PREFIX}*"):
        try:
            _remove(rest)
        except OSError as error:
            raise RolloutError(f"cannot remove {rest}: {error.strerror}") from error


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)
