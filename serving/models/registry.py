"""What is loaded: name → version → state and servable, and which of them a request gets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument


class State(IntEnum):
    """Where a version is in its life, numbered as `ModelVersionStatus.State`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclass(frozen=True)
class ModelChoice:
    """Which model a request is for, and which version: a number, a label, or neither for the highest available."""

    name: str
    version: int | None = None
    label: str | None = None


@dataclass
class Version:
    """One version that this process has ever seen; changed only under the registry's lock.

    Attributes:
        name: of its model.
        state: where it is in its life.
        error: why it failed to load; None where it didn't.
        servable: what answers; there while it is AVAILABLE or UNLOADING.
        requests: how many are running on it.
    """

    name: str
    number: int
    path: Path
    state: State = State.START
    error: StatusError | None = None
    servable: Servable | None = None
    requests: int = 0


@dataclass(frozen=True)
class VersionStatus:
    """What GetModelStatus says of one version."""

    number: int
    state: State
    error: StatusError | None


class Registry:
    """Versions by model, safe to use from any thread. Every change of state wakes who waits on `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._models: dict[str, dict[int, Version]] = {}
        self._available: dict[str, dict[int, Version]] = {}
        self._labels: dict[str, Mapping[str, int]] = {}

    def set_labels(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        """Replace the version labels of all models."""
        with self.changed:
            self._labels = dict(labels)

    def names(self) -> list[str]:
        """Models of which a version has ever been seen."""
        with self.changed:
            return list(self._models)

    def versions(self, name: str) -> list[Version]:
        """All versions ever seen of a model, lowest first."""
        with self.changed:
            return [version for _, version in sorted(self._models.get(name, {}).items())]

    def available(self, name: str) -> set[int]:
        """Numbers of the versions of a model that answer."""
        with self.changed:
            return set(self._available.get(name, {}))

    def add(self, name: str, number: int, path: Path) -> Version:
        """Note a version that is about to be loaded; one seen before begins a new life."""
        with self.changed:
            version = self._models.setdefault(name, {})[number] = Version(name, number, path)
            self.changed.notify_all()
            return version

    def update(
        self, version: Version, state: State, *, servable: Servable | None = None, error: StatusError | None = None
    ) -> None:
        """Move a version to another state."""
        with self.changed:
            version.state, version.error = state, error
            version.servable = servable or version.servable
            available = self._available.setdefault(version.name, {})
            if state is State.AVAILABLE:
                available[version.number] = version
            else:
                available.pop(version.number, None)
            self.changed.notify_all()

    def drain(self, version: Version) -> Servable:
        """Wait for the requests running on a version that is UNLOADING, and hand its servable over."""
        with self.changed:
            self.changed.wait_for(lambda: version.requests == 0)
            servable, version.servable = version.servable, None
            assert servable is not None
            return servable

    @contextlib.contextmanager
    def acquire(self, choice: ModelChoice) -> Iterator[Servable]:
        """The servable that a request is for; it stays loaded until the block is left.

        Raises:
            StatusError: there is none, in tensorflow_model_server's words.
        """
        with self.changed:
            version = self._find(choice)
            version.requests += 1
            servable = version.servable
            assert servable is not None
        try:
            yield servable
        finally:
            with self.changed:
                version.requests -= 1
                if version.state is not State.AVAILABLE:
                    self.changed.notify_all()

    def statuses(self, name: str, number: int | None) -> list[VersionStatus]:
        """States of all versions ever seen of a model, or of one, highest first.

        Raises:
            StatusError: NOT_FOUND where none is known.
        """
        with self.changed:
            known = self._models.get(name, {})
            if number is not None and number not in known:
                raise StatusError(Code.NOT_FOUND, f"Could not find version {number} of model {name}")
            if not known:
                raise StatusError(Code.NOT_FOUND, f"Could not find any versions of model {name}")
            chosen = [known[number]] if number is not None else [known[key] for key in sorted(known, reverse=True)]
            return [VersionStatus(version.number, version.state, version.error) for version in chosen]

    def _find(self, choice: ModelChoice) -> Version:
        if not choice.name:
            raise invalid_argument("ModelSpec has no name specified.")
        available = self._available.get(choice.name, {})
        number = choice.version if choice.label is None else self._labelled(choice.name, choice.label)
        if number is None:
            if not available:
                raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Latest({choice.name})")
            return available[max(available)]
        if number not in available:
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Specific({choice.name}, {number})")
        return available[number]

    def _labelled(self, name: str, label: str) -> int:
        try:
            return self._labels.get(name, {})[label]
        except KeyError:
            raise invalid_argument(f"Unrecognized servable version label: {label}") from None
