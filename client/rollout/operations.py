"""The steps of a rollout, each from its checks to its effect on the servers.

All raise RolloutError and ClientError, and those that read or remove versions PublishError.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from savedmodel_bakery.answers.photo_files import FileList
from savedmodel_bakery.client.rollout import RolloutError, steps
from savedmodel_bakery.client.rollout.evidence import Limits, check_goldens, compare_on_photos
from savedmodel_bakery.client.rollout.rollout import Rollout
from savedmodel_bakery.client.rollout.steps import CANARY, PREVIOUS, STABLE, Serving
from savedmodel_bakery.storage import versions
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.model_config import All, Latest, ModelConfig, Specific
from savedmodel_bakery.wire.version_folder import version_number


def start(rollout: Rollout, *, canary: int, stable: int | None, base_path: Path | Store | None) -> None:
    """Load a canary beside the stable version, and label both.

    Without `stable`, that is the version with the label, or else the highest that is AVAILABLE everywhere. The folder
    of versions in the config file may be on other machines only, unlike `base_path`.
    """
    if base_path is not None or rollout.file.model(rollout.model).folder.is_dir():
        find_version(base_path or rollout.base_path, canary)
    now = rollout.serving()
    available = [state.available for state in rollout.read().values()]
    if stable is None:
        stable = now.labels.get(STABLE, max(frozenset.intersection(*available) - {canary}, default=None))
    if stable is None:
        raise RolloutError(
            f"no version but {canary} is AVAILABLE on every server: state with --stable which version is stable"
        )
    targets = steps.start(now, canary=canary, stable=stable)
    former = rollout.file.text
    if canary not in now.labels.values() and not any(canary in versions for versions in available):
        # An interrupted start may have left it in the file, where it would keep a server from starting.
        former = rollout.edit(Serving(now.versions - {canary}, now.labels)) if canary in now.versions else former
    with rollout.restoring(former):
        rollout.load(targets[-1])
        first, *rest = rollout.acceptable(targets)
        rollout.put_into_effect(first)
    for target in rest:
        rollout.put_into_effect(target)


def promote(
    rollout: Rollout, *, with_goldens: bool, base_path: Path | Store | None, photos: FileList | None, limits: Limits
) -> None:
    """Make the canary stable, after it was checked: with its goldens on each server, and with photos, if any."""
    now = rollout.serving()
    if CANARY not in now.labels:
        _finish_earlier(rollout, f"{rollout} has no canary: start one first")
        return
    canary = now.labels[CANARY]
    for name, problem in rollout.differences():
        raise RolloutError(f"the canary is not in effect on {name}: {problem}. Start it again, or roll back")
    if with_goldens:
        try:
            folder = find_version(base_path or rollout.base_path, canary)
        except RolloutError as error:
            raise RolloutError(f"{error}. State the folder with --base-path, or add --no-goldens") from error
        check_goldens(rollout, folder, canary)
    if photos is not None:
        if STABLE not in now.labels:
            raise RolloutError(f"{rollout} has no stable version to compare the canary with: leave out --compare")
        compare_on_photos(rollout, photos, limits, stable=now.labels[STABLE], canary=canary)
    with rollout.restoring(rollout.file.text):
        rollout.put_into_effect(steps.promote(now))


def roll_back(rollout: Rollout) -> None:
    """Remove the canary or, without one, make the previous version stable again."""
    now = rollout.serving()
    if CANARY not in now.labels and PREVIOUS not in now.labels:
        _finish_earlier(rollout, f"{rollout} has neither a canary nor a previous version")
        return
    targets = steps.roll_back(now)
    with rollout.restoring(rollout.file.text):
        rollout.load(targets[-1])
    for target in rollout.acceptable(targets):
        rollout.put_into_effect(target)


def prune(rollout: Rollout, *, keep: int, base_path: Path | Store | None, is_trial: bool) -> Iterator[Path | Store]:
    """Remove the folders of versions that are not among the newest, in the config file or on a server, and yield them.

    RolloutError if `base_path` lacks a version that the config file or a server needs, so it is another model's.
    """
    folder = base_path or rollout.base_path
    listed = list_versions(folder)
    numbers = {number for number, _ in listed}
    reasons = _find_reasons(rollout, numbers)
    missing = next((number for number in reasons if number not in numbers), None)
    if base_path and missing is not None:
        raise RolloutError(f"{folder} lacks version {missing} ({reasons[missing]}): no version was removed")
    if not is_trial:
        for rest in versions.find_remains(folder):
            versions.remove(rest)
    newest = sorted(numbers)[-keep:]
    for number, path in listed:
        if number in newest:
            continue
        if number in reasons:
            rollout.report(f"version {number} is kept: {reasons[number]}")
            continue
        if not is_trial:
            versions.remove(path)
        yield path


def _find_reasons(rollout: Rollout, numbers: Iterable[int]) -> dict[int, str]:
    """Return why versions are needed, by number: of those that exist, by any model with the same base path."""
    file = rollout.file
    base_path = _place(file.model(rollout.model))
    models = [config for config in file.models().values() if _place(config) == base_path]
    reasons: dict[int, str] = {}
    for server in rollout.servers:
        for config in models:
            state = server.read(config.name)
            if config.name == rollout.model and not state.versions:
                raise RolloutError(f'{server.name} does not serve model "{config.name}": no version was removed')
            for status in state.versions:
                if status.state != "END" and status.version is not None:
                    reasons[status.version] = f"{status.state} on {server.name}"
    for config in models:
        match config.policy:
            case All():
                raise RolloutError(f'model "{config.name}" has the policy all in {file}: no version was removed')
            case Latest(count):
                reasons |= dict.fromkeys(sorted(numbers)[-count:], f"among the latest {count} that {file} names")
            case Specific(named):
                reasons |= dict.fromkeys(named, f"named in {file}")
        reasons |= {version: f"label {label} in {file}" for label, version in config.labels.items()}
    return reasons


def _place(config: ModelConfig) -> str:
    return config.base_path.rstrip("/") if config.is_url else os.path.realpath(config.folder)


def _finish_earlier(rollout: Rollout, otherwise: str) -> None:
    """Put the file into effect as it is: an earlier command may have been interrupted after it wrote the file.

    If it is in effect already, raise RolloutError with the text `otherwise`.
    """
    if not rollout.differences() and not rollout.failures:
        raise RolloutError(otherwise)
    rollout.load(rollout.serving())
    rollout.put_into_effect()


def list_versions(base_path: Path | Store) -> list[tuple[int, Path | Store]]:
    """Return the versions under a base path with their folders, lowest first; two folders may have the same number."""
    if isinstance(base_path, Store):
        return list(versions.published_versions(base_path).items())
    try:
        names = sorted((entry.name for entry in base_path.iterdir() if entry.is_dir()), key=os.fsencode)
    except OSError as error:
        raise RolloutError(f"cannot read the folder of versions {base_path}: {error.strerror}") from error
    numbers = ((version_number(name), base_path / name) for name in names)
    return sorted(((number, path) for number, path in numbers if number is not None), key=lambda version: version[0])


def find_version(base_path: Path | Store, version: int) -> Path | Store:
    """Return the folder of a version; of several with its number the one that servers take."""
    listed = dict(list_versions(base_path))
    if version not in listed:
        numbers = ", ".join(map(str, listed)) or "none"
        raise RolloutError(f"version {version} not found in {base_path}; its versions: {numbers}")
    return listed[version]
