"""Loads and unloads versions, each on a thread of its own: one that waits delays no other."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from savedmodel_bakery.serving import process
from savedmodel_bakery.serving.models.loading import NotAFolderError
from savedmodel_bakery.serving.models.registry import Registry, State, Version
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.options.config_files import OutsideRootsError, default_cache_folder
from savedmodel_bakery.serving.telemetry import state
from savedmodel_bakery.wire.status import Code, StatusError

logger = logging.getLogger(__name__)

Load = Callable[[str, int, Path], Servable]
"""Loads a version, given the model's name, the version number and the version folder."""


@dataclass(frozen=True)
class LifecycleOptions:
    """How often to scan for versions and to retry failed loads; see the server's flags."""

    poll_wait_s: float = 1.0  # seconds between scans of the base paths; 0 means one scan, below 0 none
    max_load_retries: int = 5  # retries after a failed load
    load_retry_interval_s: float = 60.0  # seconds between attempts; below 0 means no pause
    labels_for_unavailable: bool = False  # whether a label may name a version that isn't available
    model_roots: Sequence[Path | str] = ()  # the folders and URLs that base paths must be below
    cache_folder: Path = field(default_factory=default_cache_folder)  # for copies of versions in buckets


class VersionThreads:
    """Loads versions into a registry and unloads them; `on_change` is called after each load and unload."""

    def __init__(
        self,
        registry: Registry,
        load: Load,
        options: LifecycleOptions,
        find_wanted: Callable[[str], Mapping[int, Path]],  # folders to load now, by number, given a model's name
        stopping: threading.Event,  # once it is set, no failed load is tried again
        on_change: Callable[[], None],
    ) -> None:
        self._registry = registry
        self._load_servable = load
        self._find_wanted = find_wanted
        self._attempts = 1 + max(0, options.max_load_retries)
        self._retry_interval_s = min(max(0.0, options.load_retry_interval_s), threading.TIMEOUT_MAX)
        self._stopping = stopping
        self._on_change = on_change
        self._load_slots = threading.Semaphore(4 * (os.cpu_count() or 1))

    def load(self, version: Version) -> None:
        """Start to load a version."""
        self._start_thread(self._load, version)

    def unload(self, version: Version) -> None:
        """Start to unload a version, which ends when its running requests have."""
        self._start_thread(self._unload, version)

    def _load(self, version: Version) -> None:
        self._registry.update(version, State.LOADING)
        label = f"{{name: {version.name} version: {version.number}}}"
        logger.info("Loading servable version %s", label)
        for attempt in range(1, self._attempts + 1):
            # Between attempts, the folder may have been replaced by one with the number in another form, such as 001.
            path = self._find_wanted(version.name).get(version.number, version.path)
            try:
                with self._load_slots:
                    servable = self._load_servable(version.name, version.number, path)
            except StatusError as error:
                logger.error("Loading servable %s failed: %s", label, error)
                self._registry.retry(version, error)
                final = attempt == self._attempts or isinstance(error, (NotAFolderError, OutsideRootsError))
                if final or not self._wait_for_retry(version):
                    self._registry.update(version, State.END, error=error)
                    return
            else:
                self._on_change()
                logger.info("Successfully loaded servable version %s", label)
                self._registry.update(version, State.AVAILABLE, servable=servable)
                return

    def _wait_for_retry(self, version: Version) -> bool:
        """Wait before the next attempt; return False if the version is no longer wanted or the lifecycle stops."""
        is_stopping = self._stopping.wait(self._retry_interval_s)
        return not is_stopping and version.number in self._find_wanted(version.name)

    def _unload(self, version: Version) -> None:
        self._registry.drain(version).close()
        process.release_memory()
        self._on_change()
        state.forget_version(version.name, version.number)
        self._registry.update(version, State.END)
        logger.info("Unloaded servable version {name: %s version: %d}", version.name, version.number)

    def _start_thread(self, work: Callable[[Version], None], version: Version) -> None:
        """Run `work` on a new thread; an unexpected exception marks the version as failed."""

        def guarded() -> None:
            try:
                work(version)
            except Exception as error:
                logger.exception("{name: %s version: %d} failed", version.name, version.number)
                failure = StatusError(Code.INTERNAL, f"{type(error).__name__}: {error}")
                self._registry.update(version, State.END, error=failure)

        threading.Thread(target=guarded, name=f"{version.name}/{version.number}", daemon=True).start()
