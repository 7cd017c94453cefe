"""The steps of a rollout, each from its checks to its effect on the servers. All raise RolloutError and ClientError."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.client.rollout import steps
from savedmodel_bakery.client.rollout.errors import RolloutError
from savedmodel_bakery.client.rollout.evidence import check_goldens
from savedmodel_bakery.client.rollout.rollout import Rollout
from savedmodel_bakery.client.rollout.steps import CANARY, PREVIOUS, STABLE, Serving
from savedmodel_bakery.client.rollout.version_folders import find_version


def start(rollout: Rollout, *, canary: int, stable: int | None, base_path: Path | None) -> None:
    """Load a canary beside the stable version, and label both.

    Args:
        rollout: of the model.
        canary: the version to load.
        stable: the stable version; by default that of the label, or else the highest that is AVAILABLE everywhere.
        base_path: folder of the versions; None is that of the config file, which may be on other machines only.
    """
    if base_path is not None or rollout.base_path.is_dir():
        find_version(base_path or rollout.base_path, canary)
    now = rollout.serving()
    available = [state.available for state in rollout.read().values()]
    if stable is None:
        stable = now.labels.get(STABLE, max(frozenset.intersection(*available) - {canary}, default=None))
    if stable is None:
        raise RolloutError(
            f"no version but {canary} is AVAILABLE on every server: state with --stable which version is stable"
        )
    after = steps.start(now, canary=canary, stable=stable)
    former = rollout.file.text
    if canary not in now.labels.values() and not any(canary in versions for versions in available):
        # An interrupted start may have left it in the file, where it would keep a server from starting.
        former = rollout.edit(Serving(now.versions - {canary}, now.labels)) if canary in now.versions else former
    rollout.move(after, former=former)


def promote(rollout: Rollout, *, with_goldens: bool, base_path: Path | None) -> None:
    """Make the canary stable, after it was checked.

    Args:
        rollout: of the model.
        with_goldens: whether to replay the goldens of the canary on each server.
        base_path: folder of the versions; None is that of the config file.
    """
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
        check_goldens(folder, rollout.servers, canary, report=rollout.report)
    rollout.move(steps.promote(now), former=rollout.file.text)


def roll_back(rollout: Rollout) -> None:
    """Remove the canary or, without one, make the previous version stable again."""
    now = rollout.serving()
    if CANARY in now.labels or PREVIOUS in now.labels:
        rollout.move(steps.roll_back(now))
    else:
        _finish_earlier(rollout, f"{rollout} has neither a canary nor a previous version")


def _finish_earlier(rollout: Rollout, otherwise: str) -> None:
    """Put the file into effect as it is: an earlier command may have been interrupted after it wrote the file.

    Raises:
        RolloutError: with the text `otherwise`, if it is in effect already.
    """
    if not rollout.differences():
        raise RolloutError(otherwise)
    rollout.put_into_effect()
