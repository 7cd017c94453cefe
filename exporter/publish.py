"""Publishes versions: stages them under a name that no server loads, then renames them into place.

<root>/<name>/.staging-<random>/   being written and validated
<root>/<name>/<version>/           published, complete from the moment it becomes visible
    saved_model.pb, variables/     what a server loads
    assets.extra/recipe.toml       how it was baked; function.toml for a function, pipeline.toml for a pipeline
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from savedmodel_bakery.errors import PublishError, quote
from savedmodel_bakery.interrupts import cleaning_up
from savedmodel_bakery.wire import version_folder

RECIPE_FILE = version_folder.RECIPE
FUNCTION_FILE = Path("assets.extra") / "function.toml"
PIPELINE_FILE = Path("assets.extra") / "pipeline.toml"
PARITY_FILE = Path("assets.extra") / "parity.json"
MAX_VERSION = 2**63 - 1
_MAX_NAME_BYTES = 200  # file systems allow 255: room for suffixes
_STAGING_PREFIX = ".staging-"

T = TypeVar("T")


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


def model_name(version: Path) -> str:
    """Return the name of the model of a version's folder: that of its base path; its own if it is not a number."""
    folder = version.resolve()
    return folder.parent.name if folder.name.isdecimal() else folder.name


def size_of(folder: Path) -> int:
    """Return the bytes of all files below `folder`."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def format_size(size_bytes: int) -> str:
    """Return a size for people, such as `1.5 MB`."""
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:.1f} kB"


def default_name(model: str) -> str:
    """Derive a name to serve a model under: `efficientnet_lite0` for `efficientnet-lite0`, `flowers` for a file."""
    parts = [part for part in Path(model.rpartition(":")[2]).parts if not part.isdecimal()]  # without the version
    stem = re.sub(r"\.(keras|h5|onnx)$", "", parts[-1]) if parts else ""
    return re.sub(r"\W+", "_", stem).strip("_") or "model"


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
    number = next_version(base_path) if version is None else version
    if not 0 <= number <= MAX_VERSION:
        raise PublishError(f"invalid version {number}: must be between 0 and {MAX_VERSION}")
    if version in _numbered(base_path):
        raise PublishError(
            f"version {version} already exists in {base_path}, and published versions are never overwritten; "
            f"the next free version is {next_version(base_path)}"
        )


def check_outside_versions(folder: Path) -> None:
    """Reject a folder in which nothing may be written because it is in a SavedModel's."""
    for around in (folder.resolve(), *folder.resolve().parents):
        if (around / "saved_model.pb").is_file():
            raise PublishError(
                f"cannot write to {folder}: {around} has a SavedModel, and published versions stay as they are"
            )


def next_version(base_path: Path) -> int:
    """Return the highest number in use plus one; 1 if there is none."""
    return max(_numbered(base_path), default=0) + 1


def publish_version(
    base_path: Path,
    version: int | None,
    *,
    save: Callable[[Path], None],
    description: tuple[Path, str],
    validate: Callable[[Path], T],
) -> tuple[Path, T]:
    """Save a SavedModel in a staging folder, validate it there, and rename it to its version.

    Args:
        base_path: the folder of the numbered versions.
        version: its number; None is the next one.
        save: writes the SavedModel to a path that doesn't exist yet.
        description: a file that states how it was baked, by its path in the version, and its text.
        validate: checks the staged version and records the results in it. An error, which is raised unchanged, keeps
            the version from being published.
    """
    with staging(base_path) as stage:
        staged = stage / "version"
        with writing(base_path):
            save(staged)
            file, text = description
            (staged / file).parent.mkdir()
            (staged / file).write_text(text, encoding="utf-8")
        result = validate(staged)
        return rename_into_place(staged, base_path, version), result


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
                with contextlib.suppress(OSError), _locked(stale):
                    shutil.rmtree(stale)
            # It gets the name that other processes clean up only after it is locked.
            unlocked = Path(tempfile.mkdtemp(prefix=".new-", dir=base_path))
        with _locked(unlocked):
            stage = unlocked.with_name(unlocked.name.replace(".new-", prefix))
            with cleaning_up(partial(shutil.rmtree, stage, ignore_errors=True)):  # before it has this name
                unlocked.rename(stage)
                yield stage


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
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, at most until the process ends; OSError if another process holds the lock."""
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
