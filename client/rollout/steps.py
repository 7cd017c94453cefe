"""Decides which versions of a model are loaded, and which labels they have, after each step of a rollout.

A model with a canary is before a promotion, one with `previous` and no canary after it. If a step needs two changes,
the version that the second one unloads has a label in between. So the file alone says what is left to do, also after an
interrupted command. Does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from savedmodel_bakery.client.rollout import RolloutError

STABLE, CANARY, PREVIOUS = "stable", "canary", "previous"
LABELS = (STABLE, CANARY, PREVIOUS)
"""The version labels that rollouts assign and remove."""


@dataclass(frozen=True)
class Serving:
    """The versions of a model to load, which include those with labels, and the version of each label."""

    versions: frozenset[int]
    labels: Mapping[str, int]


def start(now: Serving, *, canary: int, stable: int) -> list[Serving]:
    """Return what is served, one after the other: first with the canary, then also without `previous`."""
    labels = now.labels
    if labels.get(CANARY, canary) != canary:
        raise RolloutError(f"version {labels[CANARY]} is the canary already: promote it or roll it back first")
    if labels.get(STABLE, stable) != stable:
        raise RolloutError(f"version {labels[STABLE]} is stable, not {stable}: leave out --stable")
    if canary == stable:
        raise RolloutError(f"version {canary} is stable already: a canary must be another version")
    started = Serving(now.versions | {stable, canary}, {**labels, STABLE: stable, CANARY: canary})
    return [started, _without(started, PREVIOUS)] if PREVIOUS in labels else [started]


def promote(now: Serving) -> Serving:
    """Return what is served after the canary has become stable; the former version stays loaded as `previous`."""
    labels = {label: version for label, version in now.labels.items() if label != CANARY}
    if STABLE in labels:
        labels[PREVIOUS] = labels[STABLE]
    labels[STABLE] = now.labels[CANARY]
    return _relabelled(now, labels)


def roll_back(now: Serving) -> list[Serving]:
    """Return what is served, one after the other.

    Without a canary, the previous version becomes stable, and the stable one the canary. Then the canary is removed.
    """
    if CANARY in now.labels:
        return [_without(now, CANARY)]
    labels = {label: version for label, version in now.labels.items() if label != PREVIOUS}
    if STABLE in labels:
        labels[CANARY] = labels[STABLE]
    labels[STABLE] = now.labels[PREVIOUS]
    swapped = Serving(now.versions, labels)
    return [swapped, _without(swapped, CANARY)] if CANARY in labels else [swapped]


def _without(serving: Serving, label: str) -> Serving:
    """Return the same without a label and its version."""
    return _relabelled(serving, {other: version for other, version in serving.labels.items() if other != label})


def _relabelled(serving: Serving, labels: Mapping[str, int]) -> Serving:
    """Return the same with other labels, and without the versions that have lost their last label."""
    lost = frozenset(serving.labels.values()) - frozenset(labels.values())
    return Serving(serving.versions - lost, labels)
