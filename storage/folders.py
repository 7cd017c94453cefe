"""Versions in a folder: lists them, and stages new ones under a name that no server loads, to rename them into place.

<root>/<name>/.staging-<random>/   being written and validated
<root>/<name>/<version>/           published, complete from the moment it becomes visible
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from savedmodel_bakery.errors import PublishError, quote
from savedmodel_bakery.interrupts import cleaning_up

_MAX_VERSION = 2**63 - 1
_MAX_NAME_BYTES = 200  # file systems allow 255: room for suffixes
_STAGING_PREFIX = ".staging-"
_REMOVED_PREFIX = ".pruned-"  # servers ignore a folder whose name is not a number


def published_versions(base_path: Path) -> dict[int, Path]:
    """Return the version numbers under `base_path` with their folders, lowest first; empty if it doesn't exist.

    As for tensorflow_model_server, a version is a folder whose name is a whole number and that contains a SavedModel.
    """
    return {
        number: path for number, path in sorted(_numbered(base_path).items()) if (path / "saved_model.pb").is_file()
    }


def find_version(path: Path) -> Path:
    """Return the folder of a version: `path` itself if it contains a SavedModel, else its newest version."""
    if (path / "saved_model.pb").is_file():
        return path
    versions = published_versions(path)
    if not versions:
        raise PublishError(
            f"no SavedModel in {path}: must be the folder of a version, such as MODEL/1, or a folder with versions"
        )
    return versions[max(versions)]


def check_name(name: str, *, of: str = "model") -> str:
    """Return the name of a model, or of something that becomes one, such as a step, if a folder can have it."""
    is_folder_name = name not in ("", ".", "..") and len(os.fsencode(name)) <= _MAX_NAME_BYTES
    if not is_folder_name or not name.isprintable() or any(character in name for character in "/:\\"):
        raise PublishError(
            f"invalid {of} name {quote(name)}: must be text without / \\ : and control characters, and not . or .., of "
            f"at most {_MAX_NAME_BYTES} bytes"
        )
    return name


def check_free(base_path: Path, version: int | None) -> None:
    """Reject a version that exists or can't be written to `base_path`, before the expensive work begins."""
    check_outside_versions(base_path)
    check_number(next_version(base_path) if version is None else version)
    if version in _numbered(base_path):
        raise PublishError(
            f"version {version} already exists in {base_path}, and published versions are never overwritten; "
            f"the next free version is {next_version(base_path)}"
        )


def check_number(number: int) -> None:
    """Reject a number that a version cannot have."""
    if not 0 <= number <= _MAX_VERSION:
        raise PublishError(f"invalid version {number}: must be between 0 and {_MAX_VERSION}")


def check_outside_versions(folder: Path) -> None:
    """Reject a folder in which nothing may be written because it is in a SavedModel's."""
    for around in (folder.resolve(), *folder.resolve().parents):
        if (around / "saved_model.pb").is_file():
            raise PublishError(
                f"cannot write to {folder}: {around} has a SavedModel, and published versions stay as they are"
            )


def next_version(base_path: Path) -> int:
    """Return the number after the highest in use under a base path; 1 for the first version."""
    return number_after(_numbered(base_path))


def number_after(used: Collection[int]) -> int:
    """Return the number after the highest of those in use; 1 for the first version."""
    return max(used, default=0) + 1


@contextlib.contextmanager
def staging(base_path: Path, *, prefix: str = _STAGING_PREFIX) -> Iterator[Path]:
    """Create a folder in `base_path`; it is removed at the end, with the folders made for it that are empty then.

    The folder is locked until then. Folders with the same prefix, which nobody else uses, and no lock belong to
    processes that were killed; they are removed too.
    """
    created = [folder for folder in (base_path, *base_path.parents) if not folder.exists()]
    with cleaning_up(partial(_remove_empty, created)):
        with writing(base_path):
            base_path.mkdir(parents=True, exist_ok=True)
            for stale in base_path.glob(f"{prefix}*"):
                with contextlib.suppress(OSError), locked(stale):
                    shutil.rmtree(stale)
            # It gets the name that other processes clean up only after it is locked.
            unlocked = Path(tempfile.mkdtemp(prefix=".new-", dir=base_path))
        with locked(unlocked):
            stage = unlocked.with_name(unlocked.name.replace(".new-", prefix))
            with cleaning_up(partial(shutil.rmtree, stage, ignore_errors=True)):  # before it has this name
                unlocked.rename(stage)
                yield stage


def remove(path: Path) -> None:
    """Remove the folder of a version, or what `find_remains` returns; PublishError if that fails.

    A server never finds a part of it, even if this process is killed.
    """
    is_hidden = path.name.startswith(_REMOVED_PREFIX)
    try:
        hidden = path if is_hidden else path.rename(path.with_name(f"{_REMOVED_PREFIX}{path.name}"))
        if hidden.is_symlink():
            hidden.unlink()
        else:
            shutil.rmtree(hidden)
    except OSError as error:
        raise PublishError(f"cannot remove {path}: {error.strerror or error}") from error


def find_remains(base_path: Path) -> list[Path]:
    """Return what is left of versions whose removal was interrupted."""
    return list(base_path.glob(f"{_REMOVED_PREFIX}*"))


def _remove_empty(folders: Sequence[Path]) -> None:
    with contextlib.suppress(OSError):  # not empty
        for folder in folders:
            folder.rmdir()


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn an OSError of the block, such as a full disk, into a PublishError that names the folder."""
    try:
        yield
    except OSError as error:
        raise PublishError(f"cannot write to {folder}: {error.strerror or error}") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder, at most until the process ends; OSError if another process holds the lock."""
    import fcntl  # here, because Windows lacks it, where clients read goldens from buckets

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def rename_into_place(staged: Path, base_path: Path, version: int | None) -> Path:
    """Rename the complete version in `staged` to `<base_path>/<version>`; None is the next number.

    The rename is atomic, and fails if a version of that number has appeared in the meantime.
    """
    staged.chmod(0o755)  # the server may run as another user
    while True:
        number = next_version(base_path) if version is None else version
        target = base_path / str(number)
        check_free(base_path, version)  # for None only the range: if another process takes the number, try the next
        try:
            staged.rename(target)  # fails if the version exists, because its folder isn't empty
        except OSError as error:
            if target.exists() and version is None:
                continue
            raise PublishError(f"cannot publish {target}: {error.strerror}") from error
        return target


def _numbered(base_path: Path) -> dict[int, Path]:
    if not base_path.is_dir():
        return {}
    return {int(path.name): path for path in base_path.iterdir() if path.name.isdecimal()}
