"""Keeps a folder like versions of a model in a bucket, for servers that load from folders only."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.storage import folders
from savedmodel_bakery.storage.manifest import MANIFEST, describe, find_difference
from savedmodel_bakery.storage.publish import published_versions, read_manifest
from savedmodel_bakery.storage.pull import pull
from savedmodel_bakery.storage.store import Store

STORAGE_ERRORS = (PublishError, ConnectionFailedError)
"""Errors of a storage or of the folder, after which another attempt may succeed."""


def mirror(
    base: Store,
    folder: Path,
    wanted: Collection[int],
    *,
    progress: Callable[[str], None],
    on_pull: Callable[[Path], None],
) -> Mapping[int, Exception]:
    """Pull the versions of a model that a folder lacks, then remove its copies of all others.

    Folders without a manifest, which are not copies, stay. Copies that are there are not read again. If a version
    cannot be pulled, no copy is removed.

    Args:
        base: the model in the bucket.
        folder: the local folder of its versions.
        wanted: the numbers of complete versions.
        progress: called with each step, in a few words.
        on_pull: called with the folder of each new copy.

    Returns:
        Why versions could not be pulled, by their numbers.

    Raises:
        PublishError: a copy cannot be removed.
    """
    errors: dict[int, Exception] = {}
    for number in sorted(wanted):
        if not (folder / str(number)).exists():
            try:
                on_pull(pull(base.below(str(number)), folder, progress=progress))
            except STORAGE_ERRORS as error:
                errors[number] = error
    if not errors:
        remove_copies(folder, keep=wanted, progress=progress)
    return errors


def remove_copies(folder: Path, *, keep: Collection[int], progress: Callable[[str], None]) -> None:
    """Remove the copies of versions from a folder except those with these numbers; see `mirror`."""
    for number, copy in folders.published_versions(folder).items():
        if number not in keep and (copy / MANIFEST).is_file():
            progress(f"removing {copy}")
            folders.remove(copy)


def remove_differing(base: Store, folder: Path, published: Set[int], *, progress: Callable[[str], None]) -> None:
    """Remove the copies in a folder that differ from the published version of their number; reads all their files.

    Raises:
        PublishError: a manifest cannot be read, or a copy cannot be removed.
        ConnectionFailedError: the storage cannot be reached.
    """
    copies = folders.published_versions(folder)
    with folders.writing(folder):
        differing = {
            number
            for number in copies.keys() & published
            if find_difference(read_manifest(base.below(str(number))), describe(copies[number]))
        }
    remove_copies(folder, keep=copies.keys() - differing, progress=progress)


def watch(
    base: Store,
    folder: Path,
    *,
    interval_s: float,
    latest: int,
    progress: Callable[[str], None],
    on_pull: Callable[[Path], None],
    on_error: Callable[[Exception], None],
) -> None:
    """Mirror the newest versions of a model again and again, until an exception such as KeyboardInterrupt.

    The copies stay while the bucket has no complete version of the model. The first time, an error is raised; later
    ones are passed to `on_error`, and repeated ones once.
    """

    def follow() -> None:
        if wanted := sorted(published_versions(base))[-latest:]:
            for error in mirror(base, folder, wanted, progress=progress, on_pull=on_pull).values():
                raise error

    follow()
    last = ""
    while True:
        time.sleep(interval_s)
        try:
            follow()
            last = ""
        except STORAGE_ERRORS as error:
            if str(error) != last:
                on_error(error)
            last = str(error)
