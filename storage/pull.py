"""Copies a version from a bucket to a folder, where it appears when it is complete and checked."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.folders import rename_into_place, staging, writing
from savedmodel_bakery.storage.manifest import GRAPH, MANIFEST, Manifest, describe, encode, find_difference, is_inside
from savedmodel_bakery.storage.publish import published_versions, read_manifest
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.version_folder import version_number


def find_version(store: Store) -> Store:
    """Return the store of a version: `store` itself if its name is a number, else its newest complete version."""
    if version_number(store.name) is not None:
        return store
    return newest_version(store)


def newest_version(base: Store) -> Store:
    """Return the store of a model's newest complete version; raise PublishError if there is none."""
    versions = published_versions(base)
    if not versions:
        raise PublishError(f"no complete version in {base}: must be the URL of a model or of a version of it")
    return base.below(str(max(versions)))


def complete_sizes(version: Store) -> dict[str, int]:
    """Return the size in bytes of each file of a version; raise PublishError if it is not complete."""
    sizes = version.sizes()
    if GRAPH not in sizes:
        raise PublishError(f"no complete version in {version}: {'its upload is unfinished' if sizes else 'not found'}")
    return sizes


def pull(
    version: Store,
    base_path: Path,
    *,
    number: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Copy a version to `<base_path>/<number>`; do nothing if a copy of it is there.

    Args:
        version: the version in a bucket.
        base_path: the local folder of the model's versions.
        number: the number of the copy; None is that of `version`.
        progress: called with each step, in a few words.

    Returns:
        The folder of the version.

    Raises:
        PublishError: the version is not complete, has no manifest, differs from it, or another one has its number.
        ConnectionFailedError: the storage cannot be reached.
    """
    stored = complete_sizes(version)
    if MANIFEST not in stored:
        raise PublishError(f"{version} has no {MANIFEST}, so a copy cannot be checked: `bakery publish` writes it")
    manifest = read_manifest(version, stored)
    number = int(version.name) if number is None else number
    target = base_path / str(number)
    if target.exists():
        return _same(target, manifest, version)
    _check(
        version,
        manifest,
        {name: replace(file, size_bytes=stored[name]) for name, file in manifest.items() if name in stored},
    )
    size_mb = sum(file.size_bytes for file in manifest.values()) / 1e6
    progress(f"downloading {len(manifest)} files, {size_mb:.1f} MB")
    with staging(base_path) as stage:
        staged = stage / "version"
        with writing(base_path):
            for name in [*manifest, MANIFEST]:
                (staged / name).parent.mkdir(parents=True, exist_ok=True)
            (staged / MANIFEST).write_bytes(encode(manifest))
            for name in manifest:
                version.download(name, staged / name)
            actual = describe(staged)
        _check(version, manifest, actual)
        try:
            return rename_into_place(staged, base_path, number)
        except PublishError:
            if not target.exists():
                raise
            return _same(target, manifest, version)  # another process was faster


@contextmanager
def partial_copy(version: Store, places: Set[Path]) -> Iterator[Path]:
    """Yield a temporary folder with the files of a version that are at these places or below one, without a check.

    The name of the folder is that of the version.
    """
    with tempfile.TemporaryDirectory(prefix="bakery-") as folder:
        copy = Path(folder) / version.name
        copy.mkdir()
        for name in version.sizes():
            if is_inside(name) and not places.isdisjoint((Path(name), *Path(name).parents)):
                with writing(copy):
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    version.download(name, copy / name)
        yield copy


def _check(version: Store, manifest: Manifest, actual: Manifest) -> None:
    if difference := find_difference(manifest, actual):
        raise PublishError(f"{version} is damaged: {difference}")


def _same(target: Path, manifest: Manifest, version: Store) -> Path:
    """Return the folder `target` if it is a copy of the version."""
    with writing(target.parent):
        difference = find_difference(manifest, describe(target))
    if difference:
        raise PublishError(
            f"{target} already exists, and published versions are never overwritten; it is not a copy of {version}: "
            f"{difference}"
        )
    return target
