"""Keeps a folder like the newest versions of a model in a bucket, for servers that watch folders only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from savedmodel_bakery.errors import ConnectionFailedError, PublishError
from savedmodel_bakery.storage import folders
from savedmodel_bakery.storage.manifest import MANIFEST
from savedmodel_bakery.storage.publish import published_versions
from savedmodel_bakery.storage.pull import pull
from savedmodel_bakery.storage.store import Store


def mirror(base: Store, folder: Path, *, latest: int, progress: Callable[[str], None]) -> list[Path]:
    """Pull the newest complete versions of a model that a folder lacks, then remove its copies of all others.

    Folders without a manifest, which are not copies, stay. Copies that are there are not read again.

    Args:
        base: the model in the bucket; its copies stay if it has no complete version.
        folder: the local folder of its versions.
        latest: how many versions, at least 1.
        progress: called with each step, in a few words.

    Returns:
        The new copies.

    Raises:
        PublishError: a version cannot be pulled; the versions before it were, and nothing was removed.
        ConnectionFailedError: the storage cannot be reached.
    """
    wanted = sorted(published_versions(base))[-latest:]
    missing = [number for number in wanted if not (folder / str(number)).exists()]
    pulled = [pull(base.below(str(number)), folder, progress=progress) for number in missing]
    for number, copy in folders.published_versions(folder).items():
        if wanted and number not in wanted and (copy / MANIFEST).is_file():
            progress(f"removing {copy}")
            with folders.writing(folder):
                folders.remove(copy)
    return pulled


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
    """Mirror a model again and again, until an exception such as KeyboardInterrupt.

    The first time, an error is raised; later ones are passed to `on_error`, and repeated ones once.
    """
    last = ""
    for copy in mirror(base, folder, latest=latest, progress=progress):
        on_pull(copy)
    while True:
        time.sleep(interval_s)
        try:
            for copy in mirror(base, folder, latest=latest, progress=progress):
                on_pull(copy)
            last = ""
        except (PublishError, ConnectionFailedError) as error:
            if str(error) != last:
                on_error(error)
            last = str(error)
