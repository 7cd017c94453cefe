"""Publishes a version to a bucket, and removes one.

    <url>/<version>/assets.extra/manifest.json   first: claims the number for these files
    <url>/<version>/variables/…                  then all others; their sizes and digests are checked
    <url>/<version>/saved_model.pb               last: a version that has it is complete

No file is overwritten, so an upload that was cut off is continued, and two publishers cannot mix their files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.folders import check_number, number_after
from savedmodel_bakery.storage.manifest import GRAPH, MANIFEST, Manifest, decode, describe, encode, find_difference
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.wire.version_folder import version_number

_MAX_MANIFEST_BYTES = 2**24


class VersionTakenError(PublishError):
    """The number belongs to a version, or to an upload, of other files."""


def published_versions(base: Store) -> dict[int, dict[str, int]]:
    """Return the numbers of the complete versions below a URL, lowest first, each with the sizes of its files."""
    return {number: sizes for number, sizes in started_versions(base).items() if GRAPH in sizes}


def started_versions(base: Store) -> dict[int, dict[str, int]]:
    """Return the same for all versions that have a file, complete or not."""
    versions: dict[int, dict[str, int]] = {}
    for path, size_bytes in base.sizes().items():
        folder, _, name = path.partition("/")
        number = version_number(folder)
        if number is not None and number >= 0 and str(number) == folder and name:
            versions.setdefault(number, {})[name] = size_bytes
    return dict(sorted(versions.items()))


def check_free(base: Store, number: int | None) -> None:
    """Reject a number that is in use, before the expensive work begins. None is the next one."""
    used = started_versions(base)
    if number is None:
        number = number_after(used)
    check_number(number)
    if number in used:
        raise _taken(base, number, used)


def publish_next(folder: Path, base: Store, *, progress: Callable[[str], None]) -> Store:
    """Publish a version's folder under the highest number in use plus one; 1 if there is none."""
    while True:
        number = number_after(started_versions(base))
        try:
            return publish(folder, base, number, progress=progress)
        except VersionTakenError:  # another publisher was faster
            continue


def publish(
    folder: Path, base: Store, number: int, *, restart: bool = False, progress: Callable[[str], None] = lambda _: None
) -> Store:
    """Publish a version's folder as `<base>/<number>`, or continue to; do nothing if that is done.

    Args:
        folder: the local folder of the version. If it has a manifest, its files must agree with it.
        base: the folder of the model's versions.
        number: the number to publish it as, 0 to 2**63 - 1.
        restart: first remove what an unfinished upload of other files has left. No such upload may be running.
        progress: called with each step, in a few words.

    Returns:
        The version.

    Raises:
        VersionTakenError: the number belongs to other files.
        PublishError: the number is out of range, the folder is not a version, or the storage refuses, or has stored
            other bytes.
        ConnectionFailedError: the storage cannot be reached.
    """
    check_number(number)
    manifest = _describe(folder)
    version = base.below(str(number))
    stored = version.sizes()
    if GRAPH in stored:
        if MANIFEST not in stored or read_manifest(version, stored) != manifest:
            raise _taken(base, number, started_versions(base))
        return version
    if restart:
        remove(version)
        stored = {}
    _claim(version, manifest, is_new=not stored)
    size_mb = sum(file.size_bytes for file in manifest.values()) / 1e6
    progress(f"uploading {len(manifest)} files, {size_mb:.1f} MB")
    others = [name for name in manifest if name != GRAPH]
    for name in others:
        _upload(version, folder, name)
    progress("checking them")
    _check(version, manifest, others)
    _upload(version, folder, GRAPH)
    _check(version, manifest, [GRAPH])
    return version


def read_manifest(version: Store, sizes: Mapping[str, int]) -> Manifest:
    """Return the manifest of a version in a bucket, which has files of these sizes."""
    if sizes.get(MANIFEST, 0) > _MAX_MANIFEST_BYTES:
        raise PublishError(
            f"{version}/{MANIFEST} has {sizes[MANIFEST]} bytes: a manifest has at most {_MAX_MANIFEST_BYTES}"
        )
    return decode(version.read(MANIFEST), f"{version}/{MANIFEST}")


def remove(version: Store) -> None:
    """Remove a version: first its graph, then its manifest.

    If that is interrupted, what is left is not a complete version, and `find_remains` tells it from an upload.
    """
    for name in sorted(version.sizes(), key=lambda name: (name != GRAPH, name != MANIFEST, name)):
        version.remove(name)


def find_remains(base: Store) -> list[Store]:
    """Return what is left of versions whose removal was interrupted: without a manifest, below a complete version."""
    started = started_versions(base)
    newest = max((number for number, sizes in started.items() if GRAPH in sizes), default=0)
    return [
        base.below(str(number))
        for number, sizes in started.items()
        if number < newest and sizes.keys().isdisjoint({GRAPH, MANIFEST})
    ]


def _describe(folder: Path) -> Manifest:
    if not (folder / GRAPH).is_file():
        raise PublishError(f"no SavedModel in {folder}: must be the folder of a version, such as MODEL/1")
    manifest = describe(folder)
    own = folder / MANIFEST
    if own.is_file() and (difference := find_difference(decode(own.read_bytes(), str(own)), manifest)):
        raise PublishError(f"{folder} is damaged: {difference}")
    return manifest


def _claim(version: Store, manifest: Manifest, *, is_new: bool) -> None:
    """Write the manifest, or find that an earlier upload of the same files, or another publisher of them, has."""
    taken = VersionTakenError(
        f"{version} has an unfinished upload of other files: if it is not running any more, remove them with "
        "--restart, or publish another version"
    )
    if not is_new and MANIFEST not in version.sizes():
        raise taken
    try:
        version.create(MANIFEST, encode(manifest))
    except FileExistsError:
        if read_manifest(version, version.sizes()) != manifest:
            raise taken from None


def _upload(version: Store, folder: Path, name: str) -> None:
    # It may be there from an upload that was cut off, or from another publisher of the same files; `_check` follows.
    with suppress(FileExistsError):
        version.create(name, folder / name)


def _check(version: Store, manifest: Manifest, names: list[str]) -> None:
    """Compare files in the bucket with a manifest: their sizes, then their content; nothing else may be there."""
    sizes = version.sizes()
    stray = sorted(sizes.keys() - manifest.keys() - {MANIFEST})
    wrong = stray or [
        name
        for name in names
        if sizes.get(name) != manifest[name].size_bytes
        or version.digest(name, manifest[name].size_bytes) != manifest[name].sha256
    ]
    if wrong:
        raise PublishError(
            f"{version}/{wrong[0]} is not the file of this version: another program has written it; remove it, or "
            "publish with --restart"
        )


def _taken(base: Store, number: int, used: Collection[int]) -> VersionTakenError:
    return VersionTakenError(
        f"version {number} already exists in {base}, and published versions are never overwritten; the next free "
        f"version is {number_after(used)}"
    )
