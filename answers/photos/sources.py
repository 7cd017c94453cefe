"""Opens the files of a bulk job: a photo, an archive of photos, or a Parquet file with photos or with their paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from savedmodel_bakery.answers.photos.archives import DAMAGE_ERRORS, TAR_SUFFIXES, read_tar, read_zip
from savedmodel_bakery.answers.photos.photo import (
    IsWanted,
    Photo,
    file_photo,
    is_image_name,
    path_key,
    reason_of,
    unreadable_photo,
)
from savedmodel_bakery.extras import naming_extras


def open_file(path: Path, is_wanted: IsWanted, *, all_files: bool) -> Iterator[Photo]:
    """Yield the photos in a file: a tar (also compressed) or zip archive or a Parquet file, by its suffix; or a photo.

    An archive is read once, from beginning to end; `all_files` also takes members whose names have no image suffix. A
    file that cannot be read yields an unreadable photo; a damaged archive yields one with the archive's key.
    """
    name = path.name.lower()

    def is_member_wanted(key: str) -> bool:
        return (all_files or is_image_name(key)) and is_wanted(key)

    if name.endswith(TAR_SUFFIXES):
        photos = read_tar(path, is_member_wanted)
    elif name.endswith(".zip"):
        photos = read_zip(path, is_member_wanted)
    elif name.endswith(".parquet"):
        photos = _read_parquet(path, is_wanted, all_files=all_files)
    else:
        if is_wanted(key := path_key(path)):
            yield file_photo(key, path)
        return
    try:
        yield from photos
    except DAMAGE_ERRORS as exc:
        if is_wanted(key := path_key(path)):
            yield unreadable_photo(key, f"the archive cannot be read to its end: {reason_of(exc)}")


def check_parquet_files(files: Iterable[Path]) -> None:
    """Raise ValueError if a Parquet file among these has neither photos nor paths of photos."""
    for path in files:
        if path.name.lower().endswith(".parquet"):
            parquet = _import_parquet()
            try:
                parquet.check_columns(path)
            except parquet.ColumnsError as exc:
                raise ValueError(f"{path} contains no photos: {exc}") from exc


def has_photos(name: str) -> bool:
    """Return whether a file of this name in a folder is a photo, an archive or a Parquet file."""
    return is_image_name(name) or name.lower().endswith((*TAR_SUFFIXES, ".zip", ".parquet"))


def _read_parquet(path: Path, is_wanted: IsWanted, *, all_files: bool) -> Iterator[Photo]:
    for photo in _import_parquet().read_photos(path, is_wanted):
        if isinstance(photo, Path):
            yield from open_file(photo, is_wanted, all_files=all_files)
        else:
            yield photo


def _import_parquet() -> ModuleType:
    with naming_extras("Parquet", "parquet"):
        from savedmodel_bakery.answers.photos import parquet
    return parquet
