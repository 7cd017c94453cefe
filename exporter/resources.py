"""Files that travel with the exporter: label sets and example photos."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.exporter.errors import ParityError

_PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")

_PACKAGE = Path(__file__).resolve().parent  # of a clone's own folder, where the package links to it


def folder(name: str) -> Path:
    """The folder `labels` or `examples`: inside the package in a wheel, beside it in a clone."""
    inside = _PACKAGE / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def example_photos() -> list[Path]:
    """The CC0 photos that every bake is proven on unless others are named."""
    return photos_in(folder("examples"))


def photos_in(path: Path) -> list[Path]:
    """The image files in a folder, by name.

    Raises:
        ParityError: there is none.
    """
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in _PHOTO_SUFFIXES and not file.is_dir())
    if not found:
        raise ParityError(f"there is no photo in {path}; photos are files named {', '.join(_PHOTO_SUFFIXES)}")
    return found
