"""Keeps a folder like versions of a model in a bucket, for servers that load from folders only."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.storage import folders
from savedmodel_bakery.storage.manifest import GRAPH, MANIFEST, describe, find_difference
from savedmodel_bakery.storage.publish import published_versions, read_manifest
from savedmodel_bakery.storage.pull import pull
from savedmodel_bakery.storage.store import Store

STORAGE_ERRORS = (PublishError, ConnectionFailedError)
"""Errors of a storage or of the folder, after which another attempt may succeed."""


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0


@dataclass(frozen=True)
class Failure:
    """A version that could not be pulled. It is not downloaded again before a time, unless its files change."""

    error: Exception
    sizes: Mapping[str, int]
    pause_s: float
    until: float  # of the monotonic clock

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a version with files of these sizes is not to be pulled now."""
        return self.sizes == sizes and time.monotonic() < self.until


def mirror(
    base: Store,
    folder: Path,
    wanted: Mapping[int, Mapping[str, int]],
    failures: Mapping[int, Failure],
    *,
    progress: Callable[[str], None],
    on_pull: Callable[[Path], None],
) -> Mapping[int, Failure]:
    """Pull the versions of a model that a folder lacks, then remove its copies of all others.

    Folders without a manifest, which are not copies, stay. Copies that are there are not read again. If a version
    cannot be pulled, no copy is removed.

    Args:
        base: the model in the bucket.
        folder: the local folder of its versions.
        wanted: the numbers of complete versions, each with the sizes of its files.
        failures: what the last call returned.
        progress: called with each step, in a few words.
        on_pull: called with the folder of each new copy.

    Returns:
        The versions that could not be pulled, by their numbers. The pauses between attempts double, so that a damaged
        version, or a full disk, does not cause a download at each call.

    Raises:
        PublishError: a copy cannot be removed.
    """
    failed: dict[int, Failure] = {}
    for number, sizes in sorted(wanted.items()):
        last = failures.get(number)
        if (folder / str(number) / GRAPH).exists():
            continue
        if last and last.holds(sizes):
            failed[number] = last
            continue
        try:
            on_pull(pull(base.below(str(number)), folder, progress=progress))
        except STORAGE_ERRORS as error:
            pause_s = min(2 * last.pause_s, _LONGEST_PAUSE_S) if last and last.sizes == sizes else _FIRST_PAUSE_S
            failed[number] = Failure(error, sizes, pause_s, time.monotonic() + pause_s)
    if not failed:
        remove_copies(folder, keep=wanted, progress=progress)
    return failed


def remove_copies(folder: Path, *, keep: Collection[int], progress: Callable[[str], None]) -> None:
    """Remove the copies of versions from a folder except those with these numbers; see `mirror`."""
    for number, copy in folders.published_versions(folder).items():
        if number not in keep and (copy / MANIFEST).is_file():
            progress(f"removing {copy}")
            folders.remove(copy)


def remove_differing(
    base: Store, folder: Path, published: Mapping[int, Mapping[str, int]], *, progress: Callable[[str], None]
) -> None:
    """Remove the copies in a folder that differ from the published version of their number; reads all their files.

    `published` has the sizes of the files of each version in the bucket.

    Raises:
        PublishError: a manifest cannot be read, or a copy cannot be removed.
        ConnectionFailedError: the storage cannot be reached.
    """
    copies = folders.published_versions(folder)
    with folders.writing(folder):
        differing = {
            number
            for number in copies.keys() & published
            if find_difference(read_manifest(base.below(str(number)), published[number]), describe(copies[number]))
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
    failures: Mapping[int, Failure] = {}

    def follow() -> None:
        nonlocal failures
        if wanted := dict(list(published_versions(base).items())[-latest:]):
            failures = mirror(base, folder, wanted, failures, progress=progress, on_pull=on_pull)
            for failure in failures.values():
                raise failure.error

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
