"""The versions of a model, in a local folder or a bucket: one function for both, for those who read or remove them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from savedmodel_bakery.storage import folders, publish, pull
from savedmodel_bakery.storage.manifest import GRAPH
from savedmodel_bakery.storage.store import Store


def published_versions(base: Path | Store) -> dict[int, Path | Store]:
    """Return the complete versions of a model by their number, lowest first."""
    if isinstance(base, Store):
        return {number: base.below(str(number)) for number in publish.published_versions(base)}
    return dict(folders.published_versions(base))


def find_version(place: Path | Store) -> Path | Store:
    """Return a version: `place` if it is one, else the newest complete version of the model in it.

    Raises:
        PublishError: there is none, or the bucket cannot be read.
    """
    return pull.find_version(place) if isinstance(place, Store) else folders.find_version(place)


def sizes(version: Path | Store) -> Mapping[str, int]:
    """Return the bytes of each file of a version, by its path in it."""
    if isinstance(version, Store):
        return version.sizes()
    files = (file for file in version.rglob("*") if file.is_file())
    return {file.relative_to(version).as_posix(): file.stat().st_size for file in files}


def published_at(version: Path | Store) -> datetime:
    """Return when a version was published, in UTC."""
    if isinstance(version, Store):
        return version.modified(GRAPH).astimezone(timezone.utc)
    return datetime.fromtimestamp(version.stat().st_mtime, timezone.utc)


@contextmanager
def opened(version: Path | Store, places: Set[Path]) -> Iterator[Path]:
    """Yield a folder that has at least the files of a version at these places or below one of them.

    It has the name of the version.
    """
    if isinstance(version, Store):
        with pull.partial_copy(version, places) as copy:
            yield copy
    else:
        yield version


def remove(version: Path | Store) -> None:
    """Remove a version, or what `find_remains` returns; raise PublishError if that fails.

    A server never finds a part of it, even if this process is killed.
    """
    if isinstance(version, Store):
        publish.remove(version)
    else:
        folders.remove(version)


def find_remains(base: Path | Store) -> list[Path] | list[Store]:
    """Return what is left of versions whose removal was interrupted."""
    return publish.find_remains(base) if isinstance(base, Store) else folders.find_remains(base)
