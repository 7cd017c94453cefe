"""The registry of known versions: state and servable by model name and version, and the choice for each request."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.telemetry.state import set_version
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.v2.tensors import shown


class State(IntEnum):
    """The state of a version; numbers are those of `ModelVersionStatus.State`."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class ModelChoice(NamedTuple):
    """The model of a request, and its version: a number, a label, or neither for the highest available version."""

    name: str
    version: int | None = None
    label: str | None = None


MAX_VERSION = 2**63 - 1


def parse_version(text: str) -> int | None:
    """Return the version number that a text states in ASCII digits; None if it is something else or too large."""
    digits = text.lstrip("0") or "0"  # int() rejects thousands of digits
    if not text.isascii() or not text.isdecimal() or len(digits) > len(str(MAX_VERSION)):
        return None
    return int(digits) if int(digits) <= MAX_VERSION else None


def read_version(text: str) -> int | None:
    """Return the version that a request names; None, for the newest one, if the text is empty."""
    if not text:
        return None
    version = parse_version(text)
    if version is None:
        raise invalid_argument(f"invalid version {shown(text)}: must be a number between 0 and {MAX_VERSION}")
    return version


@dataclass
class Version:
    """One version known to this process; modified only under the registry's lock."""

    name: str
    number: int
    path: Path  # the version folder
    state: State = State.START
    error: StatusError | None = None  # the error of the last load; None if it did not fail
    retried: StatusError | None = None  # the error of the last attempt of a load that is tried again
    servable: Servable | None = None  # the loaded version; not None while the state is AVAILABLE or UNLOADING
    requests: int = 0  # number of requests running on it
    was_unwanted: bool = False  # whether a scan did not want it after its end


class VersionStatus(NamedTuple):
    """The status of one version, as returned by GetModelStatus."""

    number: int
    state: State
    error: StatusError | None  # in states START and LOADING that of the last attempt, after which there will be another


class Registry:
    """Thread-safe store of versions by model. Every change of state notifies `changed`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a `with` block is faster than that of the condition
        self.changed = threading.Condition(self._lock)
        self._models: dict[str, dict[int, Version]] = {}
        self._available: dict[str, dict[int, Version]] = {}
        self._labels: dict[str, Mapping[str, int]] = {}
        self._missing: Mapping[str, Mapping[int, StatusError | None]] = {}

    def set_labels(self, labels: Mapping[str, Mapping[str, int]]) -> None:
        """Replace the version labels of all models."""
        with self.changed:
            self._labels = dict(labels)

    def set_missing(self, missing: Mapping[str, Mapping[int, StatusError | None]]) -> None:
        """Replace the versions that will be loaded when they have been copied, by model; see `Copies.missing`."""
        with self.changed:
            self._missing = missing

    def names(self) -> list[str]:
        """Return the names of the models with a known version."""
        with self.changed:
            return list(self._models)

    def known_name(self, name: str) -> str:
        """Return `name` if a model of this name is configured or has a known version, otherwise an empty string."""
        return name if name in self._labels or name in self._models else ""

    def is_ready(self) -> bool:
        """Return whether every configured model has an available version."""
        with self.changed:
            return all(self._available.get(name) for name in self._labels)

    def versions(self, name: str) -> list[Version]:
        """Return all known versions of a model, lowest first."""
        with self.changed:
            return [version for _, version in sorted(self._models.get(name, {}).items())]

    def available(self, name: str) -> set[int]:
        """Return the numbers of a model's available versions."""
        with self.changed:
            return set(self._available.get(name, {}))

    def add(self, name: str, number: int, path: Path) -> Version:
        """Add a version that is about to be loaded, replacing an earlier one with the same number."""
        with self.changed:
            version = self._models.setdefault(name, {})[number] = Version(name, number, path)
            set_version(name, number, is_available=False)
            self.changed.notify_all()
            return version

    def update(
        self, version: Version, state: State, *, servable: Servable | None = None, error: StatusError | None = None
    ) -> None:
        """Change the state of a version."""
        with self.changed:
            version.state, version.error = state, error
            version.servable = servable or version.servable
            available = self._available.setdefault(version.name, {})
            if state is State.AVAILABLE:
                available[version.number] = version
            else:
                available.pop(version.number, None)
            if state is not State.END or error:  # else it has been unloaded, and has no metrics
                set_version(version.name, version.number, is_available=state is State.AVAILABLE)
            self.changed.notify_all()

    def retry(self, version: Version, error: StatusError) -> None:
        """Record why an attempt to load a version failed; it is tried again, and its state remains LOADING."""
        with self.changed:
            version.retried = error

    def drain(self, version: Version) -> Servable:
        """Wait until no request runs on a version in state UNLOADING, then remove and return its servable."""
        with self.changed:
            self.changed.wait_for(lambda: version.requests == 0)
            servable, version.servable = version.servable, None
            assert servable is not None
            return servable

    def acquire(self, choice: ModelChoice) -> AbstractContextManager[Servable]:
        """Return the servable for a request; it stays loaded until the end of the `with` block."""
        with self._lock:
            version = self._find(choice)
            version.requests += 1
        return _Use(self, version)

    def _release(self, version: Version) -> None:
        with self._lock:
            version.requests -= 1
            if version.state is not State.AVAILABLE:
                self.changed.notify_all()

    def statuses(self, choice: ModelChoice) -> list[VersionStatus]:
        """Return the status of the chosen version, or of all known versions, highest first; ignores labels."""
        name, number, _ = choice
        with self.changed:
            known = {key: _status(version) for key, version in self._models.get(name, {}).items()}
            for key, error in self._missing.get(name, {}).items():
                if key not in known or known[key].state is State.END:
                    known[key] = VersionStatus(key, State.START, error)
            if number is not None and number not in known:
                raise StatusError(Code.NOT_FOUND, f"Could not find version {number} of model {name}")
            if not known:
                raise StatusError(Code.NOT_FOUND, f"Could not find any versions of model {name}")
            return [known[number]] if number is not None else [known[key] for key in sorted(known, reverse=True)]

    def _find(self, choice: ModelChoice) -> Version:
        if not choice.name:
            raise invalid_argument("ModelSpec has no name specified.")
        available = self._available.get(choice.name, {})
        number = choice.version
        if choice.label is not None:
            number = self._labels.get(choice.name, {}).get(choice.label)
            if number is None:
                raise invalid_argument(f"Unrecognized servable version label: {choice.label}")
        if number is None:
            if not available:
                raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Latest({choice.name})")
            return available[max(available)]
        if number not in available:
            raise StatusError(Code.NOT_FOUND, f"Servable not found for request: Specific({choice.name}, {number})")
        return available[number]


def _status(version: Version) -> VersionStatus:
    retried = version.retried if version.state is State.LOADING else None
    return VersionStatus(version.number, version.state, version.error or retried)


class _Use:
    """A version that a request uses."""

    def __init__(self, registry: Registry, version: Version) -> None:
        self._registry = registry
        self._version = version

    def __enter__(self) -> Servable:
        assert self._version.servable is not None
        return self._version.servable

    def __exit__(self, *_: object) -> None:
        self._registry._release(self._version)
