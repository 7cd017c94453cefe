"""Writes models into a Triton model repository: staged, then renamed into place.

<repository>/<name>/config.pbtxt
                    warmup/                    data of warm-up requests
                    <version>/model.py         runs the signature
                              saved_model/     a copy of the version's folder
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.storage.folders import check_outside_versions, staging, writing

CONFIG = "config.pbtxt"
SAVED_MODEL = "saved_model"
# Staging folders are beside files of the user if they are outside the repository.
_STAGING_PREFIX = ".bakery-triton-staging-"
_MODEL = Path(__file__).with_name("model.py")


@dataclass(frozen=True)
class Model:
    """A model of the repository."""

    name: str
    version: int
    config: str  # text of its config.pbtxt
    warmup: Mapping[str, bytes] = field(default_factory=dict)  # contents of files by name
    saved_model: Path | None = None  # folder of the SavedModel that it runs; None for an ensemble


def write_models(repository: Path, models: Sequence[Model]) -> list[Path]:
    """Write models in their order; return the folders of their versions.

    An ensemble must follow its steps, so that Triton never sees it without them. A version that is in the repository
    with the same files stays; the configuration of its model is replaced. If one is there with other files, or a newer
    one is, nothing is written.
    """
    check_outside_versions(repository)
    with staging(_staging_place(repository), prefix=_STAGING_PREFIX) as stage:
        with writing(repository):
            for model in models:
                _stage(stage / model.name, model)
        for model in models:
            _check_place(repository / model.name, stage / model.name, model)
        with writing(repository):
            repository.mkdir(exist_ok=True)
            return [_place(stage / model.name, repository / model.name, model) for model in models]


def _staging_place(repository: Path) -> Path:
    """Return the folder around the repository if models can be renamed from there, else the repository.

    Triton takes every folder in a repository for a model, hidden ones too.
    """
    around = repository.resolve().parent
    if os.path.ismount(repository) or (around.exists() and not os.access(around, os.W_OK)):
        return repository
    return around


def _stage(folder: Path, model: Model) -> None:
    version = folder / str(model.version)
    version.mkdir(parents=True)
    (folder / CONFIG).write_text(model.config, encoding="utf-8")
    if model.warmup:
        (folder / "warmup").mkdir()
    for name, data in model.warmup.items():
        (folder / "warmup" / name).write_bytes(data)
    if model.saved_model is not None:
        shutil.copyfile(_MODEL, version / _MODEL.name)
        shutil.copytree(model.saved_model, version / SAVED_MODEL)


def _check_place(target: Path, staged: Path, model: Model) -> None:
    if not target.is_dir():
        return
    newest = max((int(path.name) for path in target.iterdir() if path.name.isdecimal()), default=model.version)
    if newest > model.version:
        raise PublishError(
            f"{target} has version {newest}, which Triton would serve instead of version {model.version}; remove it, "
            "or choose another --out or --name"
        )
    version = target / str(model.version)
    if version.exists() and not _are_same(version, staged / version.name):
        raise PublishError(
            f"version {model.version} exists in {target} with other files; remove it, or choose another --out or --name"
        )


def _place(staged: Path, target: Path, model: Model) -> Path:
    version = target / str(model.version)
    if not target.exists():
        staged.rename(target)
        return version
    for file in _files(staged / "warmup"):
        (target / "warmup").mkdir(exist_ok=True)
        (staged / "warmup" / file).replace(target / "warmup" / file)
    if not version.exists():
        (staged / version.name).rename(version)
    (staged / CONFIG).replace(target / CONFIG)
    return version


def _are_same(first: Path, second: Path) -> bool:
    files = sorted(_files(first))
    return files == sorted(_files(second)) and all(
        filecmp.cmp(first / file, second / file, shallow=False) for file in files
    )


def _files(folder: Path) -> Iterator[Path]:
    """Yield the paths of all files below a folder, relative to it; none if it doesn't exist."""
    return (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
