"""Versions on disk: stage under a name that no server loads, then rename into place.

<root>/<name>/.staging-<random>/   being written and verified
<root>/<name>/<version>/           published, complete from the first moment it is seen
    saved_model.pb, variables/     what a server loads
    assets.extra/recipe.toml       how it was baked; function.toml where it is a function of the user's own
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from savedmodel_bakery.exporter.errors import PublishError

RECIPE_FILE = Path("assets.extra") / "recipe.toml"
FUNCTION_FILE = Path("assets.extra") / "function.toml"
MAX_VERSION = 2**63 - 1
_STAGING_PREFIX = ".staging-"


def published_versions(base_path: Path) -> dict[int, Path]:
    """Version numbers and their folders under `base_path`, lowest first; none where it doesn't exist.

    A folder counts when its name is a whole number, as tensorflow_model_server has it, and a SavedModel is in it.
    """
    return {
        number: path for number, path in sorted(_numbered(base_path).items()) if (path / "saved_model.pb").is_file()
    }


def check_free(base_path: Path, version: int | None) -> None:
    """Refuse a version that exists, before anything costly is done for it.

    Raises:
        PublishError: the version is there already, or its number is out of range.
    """
    _check_range(next_version(base_path) if version is None else version)
    if version in _numbered(base_path):
        raise PublishError(
            f"version {version} exists already in {base_path}, and a published version is never overwritten; "
            f"the next free one is {next_version(base_path)}"
        )


def next_version(base_path: Path) -> int:
    """One above the highest number in use; 1 where there is none."""
    return max(_numbered(base_path), default=0) + 1


@contextlib.contextmanager
def staging(base_path: Path) -> Iterator[Path]:
    """A new folder beside the versions, to write one in; removed on leaving.

    It is locked meanwhile. One that isn't locked belongs to a bake that was killed, and is removed on the way.

    Raises:
        PublishError: it can't be made, say for want of permission.
    """
    try:
        base_path.mkdir(parents=True, exist_ok=True)
        for stale in base_path.glob(f"{_STAGING_PREFIX}*"):
            with contextlib.suppress(OSError), _locked(stale):
                shutil.rmtree(stale)
        # It gets the name that others sweep only when it is locked.
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=base_path))
    except OSError as error:
        raise PublishError(f"cannot write to {base_path}: {error.strerror}") from error
    with _locked(new):
        stage = new.rename(new.with_name(new.name.replace(".new-", _STAGING_PREFIX)))
        try:
            yield stage
        finally:
            shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which ends with the process at the latest; another's is an OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def publish(staged: Path, base_path: Path, version: int | None) -> Path:
    """Rename the complete version in `staged` to `<base_path>/<version>`, or to the next number for None.

    The rename is one step for whoever looks, and fails where a version of that number appeared in the meantime.

    Raises:
        PublishError: the version exists.
    """
    staged.chmod(0o755)  # a server may run as somebody else
    while True:
        number = next_version(base_path) if version is None else version
        target = base_path / str(number)
        check_free(base_path, version)  # not the next number: whoever takes that meanwhile only moves us on
        try:
            staged.rename(target)  # fails on a version in place, as its folder isn't empty
        except OSError as error:
            if target.exists() and version is None:
                continue
            raise PublishError(f"cannot publish {target}: {error.strerror}") from error
        return target


def _check_range(version: int) -> None:
    if not 0 <= version <= MAX_VERSION:
        raise PublishError(f"version is {version}; allowed are whole numbers from 0 to {MAX_VERSION}")


def _numbered(base_path: Path) -> dict[int, Path]:
    if not base_path.is_dir():
        return {}
    return {int(path.name): path for path in base_path.iterdir() if path.name.isdecimal()}
