"""Finds the label sets and example photos that come with the exporter."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.errors import ParityError

_PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")

_ROOM = Path(__file__).resolve().parent  # resolved, because savedmodel_bakery/exporter is a link in a clone


def folder(name: str) -> Path:
    """Return the folder `labels` or `examples`: in this package if installed, at the top of a clone otherwise."""
    installed = _ROOM / name
    return installed if installed.is_dir() else _ROOM.parents[1] / name


def example_photos() -> list[Path]:
    """Return the CC0 photos that a bake is validated on by default."""
    return photos_in(folder("examples"))


def photos_in(path: Path) -> list[Path]:
    """Return the image files in a folder, sorted by name.

    Raises:
        ParityError: the folder contains no image file.
    """
    photos = sorted(file for file in path.iterdir() if file.suffix.lower() in _PHOTO_SUFFIXES and not file.is_dir())
    if not photos:
        raise ParityError(f"no photos in {path}: file names must end in {', '.join(_PHOTO_SUFFIXES)}")
    return photos
