"""Copies the versions of models whose base path is in a bucket to folders, from which they are loaded.

<cache folder>/<name of the base path>-<digest of its URL>/<version>/

A thread per base path lists the bucket at each poll, copies the versions that the policies of its models want, and
removes the copies of all others. A process locks its cache folder.
"""

from __future__ import annotations

import hashlib
import logging
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.extras import MissingPackageError
from savedmodel_bakery.serving.models.storage import select
from savedmodel_bakery.storage import folders
from savedmodel_bakery.storage.mirror import STORAGE_ERRORS, Failure, mirror, remove_copies, remove_differing
from savedmodel_bakery.storage.publish import published_versions
from savedmodel_bakery.storage.pull import complete_sizes, newest_version
from savedmodel_bakery.storage.store import Store, open_store
from savedmodel_bakery.wire.model_config import Latest, ModelConfig, Policy, Specific
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.version_folder import version_number

logger = logging.getLogger(__name__)

_FOLDER = re.compile(r".*-[0-9a-f]{16}")


@dataclass(frozen=True)
class Copies:
    """The versions of a model in a bucket that its policy wants."""

    folders: dict[int, Path] | None  # of those that are copied; None if none is, so that served versions stay
    missing: Mapping[int, StatusError | None]  # all others, with the error of the last attempt to copy each
    problem: str  # why versions may be missing; empty if there is no error


@dataclass
class _Bucket:
    """A base path, and what is known of it. Only its thread changes it, and replaces whole values."""

    store: Store
    folder: Path
    policies: tuple[Policy, ...] = ()
    published: frozenset[int] = frozenset()  # the complete versions, by the last list that had any
    copied: frozenset[int] = frozenset()  # those with a copy that will not be removed
    failures: Mapping[int, Failure] = field(default_factory=dict)  # of versions that could not be copied
    error: Exception | None = None  # why the bucket cannot be listed, or the cache not be used
    is_checked: bool = False  # whether the copies of an earlier process were compared with the bucket
    is_due: bool = False
    is_running: bool = False

    def state(self) -> tuple[Any, ...]:
        """Return all that `find` depends on."""
        errors = {number: str(failure.error) for number, failure in self.failures.items()}
        return self.published, self.copied, errors, str(self.error)


class Buckets:
    """Keeps copies of versions in buckets; `on_change` is called from other threads when they change."""

    def __init__(self, cache_folder: Path, on_change: Callable[[], None]) -> None:
        self._cache = cache_folder
        self._on_change = on_change
        self._buckets: dict[str, _Bucket] = {}
        self._lock = threading.Lock()
        self._cache_lock: ExitStack | None = None  # from the first bucket on, until the process ends

    def check(self, models: Mapping[str, ModelConfig]) -> None:
        """Check the base paths of models that are URLs, without a request, and lock the cache folder for them.

        Raises:
            StatusError: a URL is invalid, its scheme is unknown or its package is not installed, or the cache folder
                cannot be used.
        """
        if [open_base_path(config) for config in models.values() if config.is_url]:
            with self._lock:
                self._cache_lock = self._cache_lock or _lock(self._cache)

    def poll(self, models: Mapping[str, ModelConfig]) -> None:
        """Start to copy the versions that the policies of models want, unless that is running, and return."""
        configs: dict[str, list[ModelConfig]] = {}
        for config in models.values():
            if config.is_url:
                configs.setdefault(config.base_path.rstrip("/"), []).append(config)
        is_changed = configs.keys() != self._buckets.keys()
        self._buckets = {url: self._buckets.get(url) or self._open(same[0]) for url, same in configs.items()}
        if is_changed:
            self._remove_others()
        for url, bucket in self._buckets.items():
            with self._lock:
                bucket.policies = tuple(config.policy for config in configs[url])
                bucket.is_due = True
                is_running, bucket.is_running = bucket.is_running, True
            if not is_running:
                threading.Thread(target=self._run, args=(bucket,), name=f"bucket {url}", daemon=True).start()

    def find(self, config: ModelConfig) -> Copies:
        """Return the copies of a model of the last poll."""
        bucket = self._buckets.get(config.base_path.rstrip("/"))
        if bucket is None:
            return Copies(None, {}, "")
        wanted = select(config.policy, bucket.published)
        copied = {number: bucket.folder / str(number) for number in wanted if number in bucket.copied}
        missing = [number for number in wanted if number not in copied]
        failures = bucket.failures
        errors = {number: _status(failures[number].error) for number in missing if number in failures}
        problem = "; ".join(
            f"model {config.name}: {error}"
            for error in [bucket.error, *(errors[number].message for number in errors)]
            if error
        )
        is_known = bool(copied) or (bool(bucket.published) and not missing)
        return Copies(copied if is_known else None, {number: errors.get(number) for number in missing}, problem)

    def _open(self, config: ModelConfig) -> _Bucket:
        store = open_base_path(config)
        digest = hashlib.sha256(store.url.encode()).hexdigest()[:16]
        return _Bucket(store, self._cache / f"{store.name}-{digest}")

    def _remove_others(self) -> None:
        """Remove the copies of models that are no longer configured, also by an earlier process."""
        configured = {bucket.folder for bucket in self._buckets.values()}
        for folder in self._cache.glob("*"):
            if _FOLDER.fullmatch(folder.name) and folder not in configured:
                try:
                    remove_copies(folder, keep=(), progress=logger.info)
                except PublishError as error:
                    logger.warning("%s", error)
                with suppress(OSError):  # not empty
                    folder.rmdir()

    def _run(self, bucket: _Bucket) -> None:
        while self._is_due(bucket):
            before = bucket.state()
            error: Exception | None = None
            try:
                self._follow(bucket)
            except STORAGE_ERRORS as raised:
                error = raised
            except Exception as raised:
                logger.exception("copying versions of %s failed", bucket.store)
                error = raised
            bucket.error = error
            if bucket.state() != before:
                self._on_change()

    def _is_due(self, bucket: _Bucket) -> bool:
        with self._lock:
            bucket.is_running, bucket.is_due = bucket.is_due, False
            return bucket.is_running

    def _follow(self, bucket: _Bucket) -> None:
        """List a bucket, copy the versions that the policies want, and remove the copies of all others."""
        store, folder, policies = bucket.store, bucket.folder, bucket.policies

        def progress(step: str) -> None:
            logger.info("%s: %s", store, step)

        def on_pull(copy: Path) -> None:
            bucket.copied |= {int(copy.name)}
            self._on_change()

        sizes = published_versions(store)
        published = frozenset(sizes)
        if not published:
            raise PublishError(f"no complete version in {store}")
        if not bucket.is_checked:
            remove_differing(store, folder, sizes, progress=progress)
            bucket.is_checked = True
        wanted = {number: sizes[number] for policy in policies for number in select(policy, published)}
        bucket.copied = frozenset(wanted.keys() & folders.published_versions(folder).keys())
        bucket.published = published
        self._on_change()  # copying may take long
        bucket.failures = mirror(store, folder, wanted, bucket.failures, progress=progress, on_pull=on_pull)


def open_base_path(config: ModelConfig) -> Store:
    """Return the store of a base path that is a URL, without a request; StatusError if it cannot be used."""
    try:
        return open_store(config.base_path)
    except (ValueError, PublishError) as error:
        raise invalid_argument(f"base path of model {config.name}: {error}") from error
    except MissingPackageError as error:
        raise StatusError(Code.UNIMPLEMENTED, f"base path of model {config.name}: {error}") from error


def find_model(store: Store, name: str | None = None) -> ModelConfig:
    """Return the configuration of the model at a URL: the newest of its versions, or the version that it is.

    By default, its name is the last part of the model's URL. Raises PublishError if there is no complete version, and
    ConnectionFailedError if the storage cannot be reached.
    """
    number = version_number(store.name)
    if number is None:
        newest_version(store)
        return ModelConfig(name or store.name, store.url, Latest())
    base = open_store(store.url.rpartition("/")[0])
    complete_sizes(base.below(str(number)))
    return ModelConfig(name or base.name, base.url, Specific(frozenset([number])))


def check_reachable(models: Mapping[str, ModelConfig]) -> None:
    """List the base paths of models that are URLs; StatusError if that fails."""
    for config in models.values():
        if config.is_url:
            store = open_base_path(config)
            logger.info("listing %s", store)
            try:
                published_versions(store)
            except STORAGE_ERRORS as error:
                raise _status(error) from error


def _status(error: Exception) -> StatusError:
    is_unreachable = isinstance(error, ConnectionFailedError)
    return StatusError(Code.UNAVAILABLE if is_unreachable else Code.FAILED_PRECONDITION, str(error))


def _lock(folder: Path) -> ExitStack:
    """Create a folder and lock it; the lock ends with the process, or when what is returned is closed."""
    stack = ExitStack()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(folders.locked(folder))
        tempfile.TemporaryFile(dir=folder).close()  # a folder that is read-only can be locked
    except BlockingIOError as error:
        raise StatusError(
            Code.FAILED_PRECONDITION, f"{folder} is the cache of another server: choose another with --model_cache_dir"
        ) from error
    except OSError as error:
        raise StatusError(
            Code.FAILED_PRECONDITION,
            f"cannot use {folder} as cache: {error.strerror}; choose another folder with --model_cache_dir",
        ) from error
    return stack
