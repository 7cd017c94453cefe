"""Loads and unloads versions as they appear and disappear on disk, and never leaves a model unserved in between.

One thread scans the base paths, compares the wanted versions with the registry, and starts a thread for each load and
unload. So a load that waits for a retry, or an unload that waits for running requests, delays no other. A version that
is no longer wanted is unloaded only when a wanted one is available, or when none is wanted.
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

from savedmodel_bakery.serving import memory
from savedmodel_bakery.serving.models.loading import NotAFolderError
from savedmodel_bakery.serving.models.registry import Registry, State, Version
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.models.storage import wanted_versions
from savedmodel_bakery.serving.options.model_config import ModelConfig, check_models
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

Load = Callable[[str, int, Path], Servable]
"""Loads a version, given the model's name, the version number and the version folder."""


@dataclass(frozen=True)
class LifecycleOptions:
    """How often to scan for versions and to retry failed loads; see the server's flags.

    Attributes:
        poll_wait_s: seconds between scans of the base paths; 0 means one scan, below 0 none.
        max_load_retries: retries after a failed load.
        load_retry_interval_s: seconds between attempts; below 0 means no pause.
        labels_for_unavailable: whether a label may name a version that isn't available.
    """

    poll_wait_s: float = 1.0
    max_load_retries: int = 5
    load_retry_interval_s: float = 60.0
    labels_for_unavailable: bool = False


class Lifecycle:
    """Keeps a registry in sync with the configured models and the versions on disk."""

    def __init__(self, registry: Registry, load: Load, options: LifecycleOptions) -> None:
        self._registry = registry
        self._load_servable = load
        self._options = options
        self._models: dict[str, ModelConfig] = {}
        self._is_configured = False
        self._wanted: dict[str, dict[int, Path]] = {}
        self._failed: set[tuple[str, int]] = set()
        self._next_scan = math.inf
        self._scan_error = ""
        self._stopping = threading.Event()
        self._reload_lock = threading.Lock()
        self._load_slots = threading.Semaphore(4 * (os.cpu_count() or 1))
        self._thread = threading.Thread(target=self._run, name="lifecycle", daemon=True)

    def start(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Start loading; return when every model has an available version, or when `stop` is called.

        Raises:
            StatusError: all wanted versions of a model failed to load, or the configuration is invalid.
        """
        self._thread.start()
        self.reload(models)

    def reload(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Replace the configuration; return when every new model has an available version.

        Removed models are unloaded; policies and labels of the others take effect. An invalid configuration changes
        nothing. If a new model fails to load, or request logging is configured, the call fails although the new
        configuration is in effect. None, an empty configuration, is valid only before the first one.

        Raises:
            StatusError: as for `start`.
        """
        with self._reload_lock, self._registry.changed:
            if models is None:
                self._check_unconfigured()
                return
            check_models(
                models,
                self._models,
                self._registry.available,
                labels_for_unavailable=self._options.labels_for_unavailable,
            )
            noun = "model(s)" if self._is_configured else "servable(s)"
            self._is_configured = True
            new = set(models) - set(self._models)
            self._models = dict(models)
            self._registry.set_labels({name: config.labels for name, config in models.items()})
            if self._options.poll_wait_s >= 0:
                self._next_scan = 0.0
            self._registry.changed.notify_all()
            self._registry.changed.wait_for(lambda: self._stopping.is_set() or all(map(self._is_settled, new)))
            if self._stopping.is_set():
                return
            failures = [failure for name in sorted(new) if (failure := self._failure(name))]
        if failures:
            reasons = "".join(f"{failure}, " for failure in failures)
            raise StatusError(Code.UNKNOWN, f"{len(failures)} {noun} did not become available: {{{reasons}}}")
        if any(config.has_request_logging for config in models.values()):
            raise invalid_argument("No request-logger-creator provided.")

    def stop(self) -> None:
        """Stop scanning, and end waiting calls of `start` and `reload`; loaded versions stay loaded."""
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
        """Return the error of a model's highest wanted version if all wanted versions failed, otherwise None."""
        wanted = self._wanted.get(name, {})
        versions = [version for version in self._registry.versions(name) if version.number in wanted]
        if not versions or len(versions) < len(wanted) or not all(version.error for version in versions):
            return None
        highest = max(versions, key=lambda version: version.number)
        return f"{{{{name: {name} version: {highest.number}}} due to error: {highest.error}}}"

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception:
                logger.exception("updating the models failed; retrying in 1 s")
                self._stopping.wait(1.0)

    def _step(self) -> None:
        """Scan the disk if it is due, start loads and unloads, and wait for a change or the next scan."""
        changed, poll_wait_s = self._registry.changed, self._options.poll_wait_s
        with changed:
            models, is_due = self._models, time.monotonic() >= self._next_scan
            if is_due:
                self._next_scan = time.monotonic() + poll_wait_s if poll_wait_s > 0 else math.inf
        wanted = self._scan(models) if is_due else None
        with changed:
            if wanted is not None and models is self._models:
                self._wanted = wanted
            for name in {*self._models, *self._registry.names()}:
                self._reconcile(name, self._wanted.get(name, {}) if name in self._models else {})
            if not self._stopping.is_set():
                changed.wait(min(max(self._next_scan - time.monotonic(), 0.0), 1.0))

    def _scan(self, models: Mapping[str, ModelConfig]) -> dict[str, dict[int, Path]] | None:
        """Return the wanted versions by model; None, which changes nothing, if a base path can't be listed."""
        try:
            wanted = {name: wanted_versions(config) for name, config in models.items()}
        except StatusError as error:
            if error.message != self._scan_error:  # not at every scan
                logger.warning("FileSystemStoragePathSource encountered a filesystem access error: %s", error.message)
            self._scan_error = error.message
            return None
        self._scan_error = ""
        for name, versions in wanted.items():
            if not versions and versions != self._wanted.get(name):
                logger.warning(
                    "No versions of servable %s found under base path %s. Did you forget to name your leaf directory "
                    "as a number (eg. '/1/')?",
                    name,
                    models[name].base_path,
                )
        return wanted

    def _reconcile(self, name: str, wanted: Mapping[int, Path]) -> None:
        known = {version.number: version for version in self._registry.versions(name)}
        ended = {number for number, version in known.items() if version.state is State.END}
        # A failed version is loaded again only after a scan in which it was not wanted.
        self._failed = {(model, number) for model, number in self._failed if model != name or number in wanted}
        failed = {number for model, number in self._failed if model == name}
        for number in sorted(set(wanted) - (set(known) - ended) - failed, reverse=True):
            version = self._registry.add(name, number, wanted[number])
            self._start_thread(self._load, version)
        for version in self._versions_to_unload(known, wanted):
            self._registry.update(version, State.UNLOADING)
            self._start_thread(self._unload, version)

    @staticmethod
    def _versions_to_unload(known: Mapping[int, Version], wanted: Mapping[int, Path]) -> list[Version]:
        available = [version for _, version in sorted(known.items()) if version.state is State.AVAILABLE]
        unwanted = [version for version in available if version.number not in wanted]
        if not wanted or len(unwanted) < len(available):
            return unwanted
        return unwanted[:-1]  # keep the highest until a wanted version is available

    def _load(self, version: Version) -> None:
        self._registry.update(version, State.LOADING)
        label = f"{{name: {version.name} version: {version.number}}}"
        attempts = 1 + max(0, self._options.max_load_retries)
        for attempt in range(1, attempts + 1):
            # Between attempts, the folder may have been replaced by one with the number in another form, such as 001.
            path = self._wanted.get(version.name, {}).get(version.number, version.path)
            try:
                with self._load_slots:
                    servable = self._load_servable(version.name, version.number, path)
            except StatusError as error:
                logger.error("Loading servable %s failed: %s", label, error)
                final = attempt == attempts or isinstance(error, NotAFolderError)
                if final or not self._wait_for_retry(version):
                    self._set_failed(version, error)
                    return
            else:
                logger.info("Successfully loaded servable version %s", label)
                self._registry.update(version, State.AVAILABLE, servable=servable)
                return

    def _set_failed(self, version: Version, error: StatusError) -> None:
        with self._registry.changed:
            self._failed.add((version.name, version.number))
            self._registry.update(version, State.END, error=error)

    def _wait_for_retry(self, version: Version) -> bool:
        """Wait before the next attempt; return False if the version is no longer wanted or the lifecycle stops."""
        interval_s = min(max(0.0, self._options.load_retry_interval_s), threading.TIMEOUT_MAX)
        return not self._stopping.wait(interval_s) and version.number in self._wanted.get(version.name, {})

    def _unload(self, version: Version) -> None:
        self._registry.drain(version).close()
        memory.release()
        self._registry.update(version, State.END)
        logger.info("Unloaded servable version {name: %s version: %d}", version.name, version.number)

    def _start_thread(self, work: Callable[[Version], None], version: Version) -> None:
        """Run `work` on a new thread; an unexpected exception marks the version as failed."""

        def guarded() -> None:
            try:
                work(version)
            except Exception as error:
                logger.exception("{name: %s version: %d} failed", version.name, version.number)
                self._set_failed(version, StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}"))

        threading.Thread(target=guarded, name=f"{version.name}/{version.number}", daemon=True).start()
