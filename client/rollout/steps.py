"""Decides which versions of a model are loaded, and which labels they have, after each step of a rollout.

A model is in one of two states: only `stable` with, after a promotion, `previous`; or `stable` and `canary`. So the
file alone says what a rollback does, also after an interrupted command. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savedmodel_bakery.client.rollout.errors import RolloutError

STABLE, CANARY, PREVIOUS = "stable", "canary", "previous"
LABELS = (STABLE, CANARY, PREVIOUS)
"""The version labels that rollouts assign and remove."""


@dataclass(frozen=True)
class Serving:
    """What is served of a model.

    Attributes:
        versions: the versions to load.
        labels: version by label.
    """

    versions: frozenset[int]
    labels: Mapping[str, int]


def start(now: Serving, *, canary: int, stable: int) -> Serving:
    """Return what is served after a canary has been added; `previous` ends.

    Raises:
        RolloutError: another canary is in progress, or a version has the other label already.
    """
    labels = now.labels
    if labels.get(CANARY, canary) != canary:
        raise RolloutError(f"version {labels[CANARY]} is the canary already: promote it or roll it back first")
    if labels.get(STABLE, stable) != stable:
        raise RolloutError(f"version {labels[STABLE]} is stable, not {stable}: leave out --stable")
    if canary == stable:
        raise RolloutError(f"version {canary} is stable already: a canary must be another version")
    kept = {label: version for label, version in labels.items() if label != PREVIOUS}
    after = Serving(now.versions, {**kept, STABLE: stable, CANARY: canary})
    versions = _unload(after, labels.get(PREVIOUS)).versions
    return Serving(versions | {stable, canary}, after.labels)


def promote(now: Serving) -> Serving:
    """Return what is served after the canary has become stable; the former version stays loaded as `previous`."""
    labels = {label: version for label, version in now.labels.items() if label != CANARY}
    if STABLE in labels:
        labels[PREVIOUS] = labels[STABLE]
    labels[STABLE] = now.labels[CANARY]
    return Serving(now.versions, labels)


def roll_back(now: Serving) -> Serving:
    """Return what is served after the canary has been removed or, without one, after `previous` has become stable."""
    if CANARY in now.labels:
        return without_canary(now)
    labels = {label: version for label, version in now.labels.items() if label != PREVIOUS}
    labels[STABLE] = now.labels[PREVIOUS]
    return _unload(Serving(now.versions, labels), now.labels.get(STABLE))


def without_canary(now: Serving) -> Serving:
    """Return what is served after the canary has been removed."""
    labels = {label: version for label, version in now.labels.items() if label != CANARY}
    return _unload(Serving(now.versions, labels), now.labels[CANARY])


def _unload(serving: Serving, version: int | None) -> Serving:
    """Return the same without a version, unless it has a label."""
    if version in serving.labels.values():
        return serving
    return Serving(serving.versions - {version}, serving.labels)
