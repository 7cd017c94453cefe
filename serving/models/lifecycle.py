"""Loads and unloads versions as they appear and disappear on disk, and never leaves a model unserved in between.

One thread scans the base paths, compares the wanted versions with the registry, and starts loads and unloads. A version
that is no longer wanted is unloaded only when a wanted one is available, or when none is wanted.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.models.registry import Registry, State, Version
from savedmodel_bakery.serving.models.scanner import Scanner
from savedmodel_bakery.serving.models.version_threads import LifecycleOptions, Load, VersionThreads
from savedmodel_bakery.serving.options.config_files import check_base_paths, check_models
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)


class Lifecycle:
    """Keeps a registry in sync with the configured models and the versions on disk; `on_change` follows each change."""

    def __init__(
        self, registry: Registry, load: Load, options: LifecycleOptions, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._registry = registry
        self._options = options
        self._models: dict[str, ModelConfig] = {}
        self._is_configured = False
        self._wanted: dict[str, dict[int, Path]] = {}
        self._next_scan = math.inf
        self._is_scan_due = False  # because a bucket has changed
        self._scanner = Scanner(options.cache_folder, self._scan_soon)
        self._new: set[str] = set()  # models that have neither been available nor failed yet
        self._reload: object | None = None  # identifies the call of `reload` that may wait
        self._stopping = threading.Event()
        self._threads = VersionThreads(
            registry, load, options, lambda name: self._wanted.get(name, {}), self._stopping, on_change
        )
        self._thread = threading.Thread(target=self._run, name="lifecycle", daemon=True)

    def start(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Start loading; return when every model has an available version, or when `stop` is called.

        If `apply` replaces the configuration meanwhile, waits for the models of the new one. Raises StatusError if all
        wanted versions of a model failed to load, or the configuration is invalid.
        """
        self._thread.start()
        self._check(models)
        with self._registry.changed:
            self._replace(models)
            self._registry.changed.wait_for(lambda: self._stopping.is_set() or not self._pending())
            if self._stopping.is_set():
                return
            models = self._models
            self._check_loaded(models, "servable(s)")
        _check_request_logging(models)

    def apply(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Replace the configuration and return at once, before its new models are available.

        Removed models are unloaded; policies and labels of the others take effect. An invalid configuration changes
        nothing. If request logging is configured, the call fails although the new configuration is in effect. None, an
        empty configuration, is valid only before the first one.
        """
        self._check(models)
        with self._registry.changed:
            is_changed = models != self._models
            self._replace(models)
            if is_changed:
                self._reload = None
        _check_request_logging(models)

    def reload(self, models: Mapping[str, ModelConfig] | None, context: RequestContext) -> None:
        """Replace the configuration as `apply` does; return when every new model has an available version.

        Waits for a model whose base path doesn't exist. If the call fails for another reason than an invalid
        configuration, the new configuration is in effect: UNKNOWN if all wanted versions of a new model failed to load,
        DEADLINE_EXCEEDED or CANCELLED if the call ends before a new model is available, ABORTED if another
        configuration replaces this one meanwhile, UNAVAILABLE if `stop` is called.
        """
        self._check(models)
        changed = self._registry.changed
        with context.on_cancel(self._notify), changed:
            noun = "model(s)" if self._is_configured else "servable(s)"
            self._replace(models)
            self._reload = reload = object()
            new = sorted(self._new)

            def is_over() -> bool:
                return self._stopping.is_set() or self._reload is not reload or context.is_cancelled

            changed.wait_for(lambda: is_over() or not self._pending(), context.remaining_s())
            if self._stopping.is_set():
                raise StatusError(Code.UNAVAILABLE, "the server is stopping")
            if self._reload is not reload:
                raise StatusError(Code.ABORTED, "replaced by a newer configuration")
            if pending := self._pending():
                reasons = "; ".join(f"{name}: {self._scanner.problems.get(name, 'loading')}" for name in pending)
                raise StatusError(
                    Code.CANCELLED if context.is_cancelled else Code.DEADLINE_EXCEEDED,
                    f"the configuration is in effect, but {len(pending)} {noun} did not become available before the "
                    f"call ended: {reasons}",
                )
            self._check_loaded(new, noun)
        _check_request_logging(models)

    def stop(self) -> None:
        """Stop scanning, and end waiting calls of `start` and `reload`; loaded versions stay loaded."""
        self._stopping.set()
        self._notify()

    def join(self, timeout_s: float) -> None:
        """Return when the thread that scans has ended after `stop`; a thread that runs TensorFlow may crash an exit."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _check(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Check base paths; not with the registry's lock, because a disk may not answer."""
        check_base_paths(models or {}, self._options.model_roots)
        self._scanner.buckets.check(models or {})

    def _scan_soon(self) -> None:
        with self._registry.changed:
            self._is_scan_due = True
            self._registry.changed.notify_all()

    def _notify(self) -> None:
        with self._registry.changed:
            self._registry.changed.notify_all()

    def _replace(self, models: Mapping[str, ModelConfig] | None) -> None:
        """Check a configuration and put it into effect; the caller holds the registry's lock."""
        if models is None:
            if self._is_configured:
                raise StatusError(
                    Code.FAILED_PRECONDITION,
                    "Cannot transition to requested config. It is only legal to transition from one ModelConfigList "
                    "to another.",
                )
            return
        check_models(
            models, self._models, self._registry.available, labels_for_unavailable=self._options.labels_for_unavailable
        )
        self._is_configured = True
        pending = self._pending()
        self._new = {name for name in models if name not in self._models or name in pending}
        self._models = dict(models)
        self._wanted = {name: wanted for name, wanted in self._wanted.items() if name in models}
        self._registry.set_labels({name: config.labels for name, config in models.items()})
        if self._options.poll_wait_s >= 0:
            self._next_scan = 0.0
        self._registry.changed.notify_all()

    def _pending(self) -> list[str]:
        """Return the new models that are neither available nor have failed, by name."""
        return [
            name for name in sorted(self._new) if not self._registry.available(name) and self._failure(name) is None
        ]

    def _check_loaded(self, names: Iterable[str], noun: str) -> None:
        failures = [failure for name in sorted(names) if (failure := self._failure(name))]
        if failures:
            reasons = "".join(f"{failure}, " for failure in failures)
            raise StatusError(Code.UNKNOWN, f"{len(failures)} {noun} did not become available: {{{reasons}}}")

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
            is_scan_due, self._is_scan_due = is_due or self._is_scan_due, False
        if is_due:
            self._scanner.buckets.poll(models)
        wanted = self._scanner.scan(models, self._wanted) if is_scan_due else None
        with changed:
            self._new = set(self._pending())  # before a version that has just become available is unloaded
            if wanted is not None and models is self._models:
                self._wanted = wanted
                self._registry.set_missing(self._scanner.missing)
            for name in {*self._models, *self._registry.names()}:
                self._reconcile(name, self._wanted.get(name, {}) if name in self._models else {})
            if not self._stopping.is_set() and not self._is_scan_due:
                changed.wait(min(max(self._next_scan - time.monotonic(), 0.0), 1.0))

    def _reconcile(self, name: str, wanted: Mapping[int, Path]) -> None:
        known = {version.number: version for version in self._registry.versions(name)}
        for number, version in known.items():
            version.was_unwanted |= version.state is State.END and number not in wanted
        for number in sorted(wanted, reverse=True):
            last = known.get(number)
            # A failed version is loaded again only after a scan in which it was not wanted.
            if last is None or (last.state is State.END and (last.was_unwanted or not last.error)):
                self._threads.load(self._registry.add(name, number, wanted[number]))
        for version in self._versions_to_unload(known, wanted):
            self._registry.update(version, State.UNLOADING)
            self._threads.unload(version)

    @staticmethod
    def _versions_to_unload(known: Mapping[int, Version], wanted: Mapping[int, Path]) -> list[Version]:
        available = [version for _, version in sorted(known.items()) if version.state is State.AVAILABLE]
        unwanted = [version for version in available if version.number not in wanted]
        if not wanted or len(unwanted) < len(available):
            return unwanted
        return unwanted[:-1]  # keep the highest until a wanted version is available


def _check_request_logging(models: Mapping[str, ModelConfig] | None) -> None:
    if any(config.has_request_logging for config in (models or {}).values()):
        raise invalid_argument("No request-logger-creator provided.")
