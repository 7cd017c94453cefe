"""Lifecycle: follow the disk, load what is wanted, unload what isn't, and never leave a model unserved in between.

One thread decides: it looks at the base paths, compares what is wanted with what the registry holds, and starts a
thread for each load and unload, so that one that waits (between attempts, for requests in flight) holds up no other. A
version that is no longer wanted goes only when a wanted one answers, or when none is wanted.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.serving.models import memory
from savedmodel_bakery.serving.models.loading import NotAFolderError
from savedmodel_bakery.serving.models.registry import Registry, State, Version
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.models.storage import wanted_versions
from savedmodel_bakery.serving.options.model_config import ModelConfig, check_models
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

Load = Callable[[str, int, Path], Servable]
"""Loads a version: the model's name, the version's number and its folder."""


@dataclass(frozen=True)
class LifecycleOptions:
    """How often to look, and how often to try; the flags of the same names.

    Attributes:
        poll_wait_s: seconds between looks at the base paths; 0 is once, below 0 never.
        max_load_retries: further attempts after a failed load.
        load_retry_interval_s: seconds between attempts; below 0 is none.
        labels_for_unavailable: whether a label may name a version that isn't available.
    """

    poll_wait_s: float = 1.0
    max_load_retries: int = 5
    load_retry_interval_s: float = 60.0
    labels_for_unavailable: bool = False


class Lifecycle:
    """Keeps a registry in step with the configured models and the disk."""

    def __init__(self, registry: Registry, load: Load, options: LifecycleOptions) -> None:
        self._registry = registry
        self._load_servable = load
        self._options = options
        self._models: dict[str, ModelConfig] = {}
        self._is_configured = False
        self._wanted: dict[str, dict[int, Path]] = {}
        self._given_up: set[tuple[str, int]] = set()
        self._next_look = math.inf
        self._stopping = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._load_places = threading.Semaphore(4 * (os.cpu_count() or 1))
        self._thread = threading.Thread(target=self._follow, name="lifecycle", daemon=True)

    def start(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Begin to load, and return when every model has a version that answers, or when told to stop.

        Raises:
            StatusError: a model's wanted versions all failed, or the configuration is refused.
        """
        self._thread.start()
        self.reload(models)

    def reload(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Replace the configuration, and return when every model that is new has a version that answers.

        Models that are gone are unloaded; policies and labels of the others take effect. A refusal changes nothing,
        but where new models fail, or requests are to be logged, the configuration is in force all the same. None is a
        configuration of no kind, which may come before all others.

        Raises:
            StatusError: as for `start`.
        """
        with self._one_at_a_time, self._registry.changed:
            if models is None:
                self._check_unconfigured()
                return
            allowed = self._options.labels_for_unavailable
            check_models(models, self._models, self._registry.available, labels_for_unavailable=allowed)
            noun = "model(s)" if self._is_configured else "servable(s)"
            self._is_configured = True
            new = set(models) - set(self._models)
            self._models = dict(models)
            self._registry.set_labels({name: config.labels for name, config in models.items()})
            if self._options.poll_wait_s >= 0:
                self._next_look = 0.0
            self._registry.changed.notify_all()
            self._registry.changed.wait_for(lambda: self._stopping.is_set() or all(map(self._is_settled, new)))
            if self._stopping.is_set():
                return
            failures = [failure for name in sorted(new) if (failure := self._failure(name))]
        if failures:
            listed = "".join(f"{failure}, " for failure in failures)
            raise StatusError(Code.UNKNOWN, f"{len(failures)} {noun} did not become available: {{{listed}}}")
        if any(config.has_request_logging for config in models.values()):
            raise invalid_argument("No request-logger-creator provided.")

    def stop(self) -> None:
        """Stop following the disk, and waiting for it; what is loaded stays loaded."""
        self._stopping.set()
        with self._registry.changed:
            self._registry.changed.notify_all()

    def _check_unconfigured(self) -> None:
        if self._is_configured:
            raise StatusError(
                Code.FAILED_PRECONDITION,
                "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to "
                "another.",
            )

    def _is_settled(self, name: str) -> bool:
        return bool(self._registry.available(name)) or self._failure(name) is not None

    def _failure(self, name: str) -> str | None:
        """The highest wanted version of a model and its error, where all of them have failed."""
        wanted = self._wanted.get(name, {})
        versions = [version for version in self._registry.versions(name) if version.number in wanted]
        if not versions or len(versions) < len(wanted) or not all(version.error for version in versions):
            return None
        highest = max(versions, key=lambda version: version.number)
        return f"{{{{name: {name} version: {highest.number}}} due to error: {highest.error}}}"

    def _follow(self) -> None:
        while not self._stopping.is_set():
            try:
                self._go_round()
            except Exception:
                logger.exception("following the models failed; it is tried again")
                self._stopping.wait(1.0)

    def _go_round(self) -> None:
        """Look at the disk if it is time, act on what is wanted, and wait until something changes or it is time."""
        changed, poll_wait_s = self._registry.changed, self._options.poll_wait_s
        with changed:
            models, is_due = self._models, time.monotonic() >= self._next_look
            if is_due:
                self._next_look = time.monotonic() + poll_wait_s if poll_wait_s > 0 else math.inf
        found = self._look(models) if is_due else None
        with changed:
            if found is not None and models is self._models:
                self._wanted = found
            for name in {*self._models, *self._registry.names()}:
                self._reconcile(name, self._wanted.get(name, {}) if name in self._models else {})
            if not self._stopping.is_set():
                changed.wait(min(max(self._next_look - time.monotonic(), 0.0), 1.0))

    def _look(self, models: Mapping[str, ModelConfig]) -> dict[str, dict[int, Path]] | None:
        """Wanted versions by model; None where a base path can't be listed, which leaves all as it is."""
        try:
            found = {name: wanted_versions(config) for name, config in models.items()}
        except StatusError as error:
            logger.warning("FileSystemStoragePathSource encountered a filesystem access error: %s", error.message)
            return None
        for name, versions in found.items():
            if not versions and versions != self._wanted.get(name):
                logger.warning(
                    "No versions of servable %s found under base path %s. Did you forget to name your leaf directory "
                    "as a number (eg. '/1/')?",
                    name,
                    models[name].base_path,
                )
        return found

    def _reconcile(self, name: str, wanted: Mapping[int, Path]) -> None:
        known = {version.number: version for version in self._registry.versions(name)}
        ended = {number for number, version in known.items() if version.state is State.END}
        # A failed version is tried again only after it has not been wanted for a while.
        self._given_up = {(model, number) for model, number in self._given_up if model != name or number in wanted}
        given_up = {number for model, number in self._given_up if model == name}
        for number in sorted(set(wanted) - (set(known) - ended) - given_up, reverse=True):
            version = self._registry.add(name, number, wanted[number])
            self._start(self._load, version)
        for version in self._superfluous(known, wanted):
            self._registry.update(version, State.UNLOADING)
            self._start(self._unload, version)

    @staticmethod
    def _superfluous(known: Mapping[int, Version], wanted: Mapping[int, Path]) -> list[Version]:
        ready = [version for _, version in sorted(known.items()) if version.state is State.AVAILABLE]
        unwanted = [version for version in ready if version.number not in wanted]
        if not wanted or len(unwanted) < len(ready):
            return unwanted
        return unwanted[:-1]

    def _load(self, version: Version) -> None:
        self._registry.update(version, State.LOADING)
        named = f"{{name: {version.name} version: {version.number}}}"
        attempts = 1 + max(0, self._options.max_load_retries)
        for attempt in range(1, attempts + 1):
            # While attempts fail, the folder may be completed under another spelling of its number.
            path = self._wanted.get(version.name, {}).get(version.number, version.path)
            try:
                with self._load_places:
                    servable = self._load_servable(version.name, version.number, path)
            except StatusError as error:
                logger.error("Loading servable %s failed: %s", named, error)
                final = attempt == attempts or isinstance(error, NotAFolderError)
                if final or not self._wait_for_retry(version):
                    self._give_up(version, error)
                    return
            else:
                logger.info("Successfully loaded servable version %s", named)
                self._registry.update(version, State.AVAILABLE, servable=servable)
                return

    def _give_up(self, version: Version, error: StatusError) -> None:
        with self._registry.changed:
            self._given_up.add((version.name, version.number))
            self._registry.update(version, State.END, error=error)

    def _wait_for_retry(self, version: Version) -> bool:
        """Sit out the pause before the next attempt; False where the version stopped being wanted."""
        interval_s = min(max(0.0, self._options.load_retry_interval_s), threading.TIMEOUT_MAX)
        return not self._stopping.wait(interval_s) and version.number in self._wanted.get(version.name, {})

    def _unload(self, version: Version) -> None:
        self._registry.drain(version).close()
        memory.release()
        self._registry.update(version, State.END)
        logger.info("Unloaded servable version {name: %s version: %d}", version.name, version.number)

    def _start(self, work: Callable[[Version], None], version: Version) -> None:
        """Do it on a thread of its own; what nobody expected ends the version, not only the thread."""

        def guarded() -> None:
            try:
                work(version)
            except Exception as error:
                logger.exception("{name: %s version: %d} failed", version.name, version.number)
                self._give_up(version, StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}"))

        threading.Thread(target=guarded, name=f"{version.name}/{version.number}", daemon=True).start()
