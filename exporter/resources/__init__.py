"""Finds the label sets and example photos that come with the exporter, and reads labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from savedmodel_bakery.errors import LabelError, ParityError, quote

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")

_ROOM = Path(__file__).resolve().parent  # resolved, because savedmodel_bakery/exporter is a link in a clone


def folder(name: str) -> Path:
    """Return the folder `labels` or `examples`: in this package if installed, at the top of a clone otherwise."""
    installed = _ROOM / name
    return installed if installed.is_dir() else _ROOM.parents[1] / name


def example_photos() -> list[Path]:
    """Return the CC0 photos that a bake is validated on by default."""
    return photos_in(folder("examples"))


def photos_in(path: Path) -> list[Path]:
    """Return the image files in a folder, or if there are none, in its subfolders, sorted; at least one."""
    for files in (path.iterdir(), path.glob("*/*")):
        if photos := sorted(filter(is_photo, files)):
            return photos
    raise ParityError(f"no photos in {path}: file names must end in {', '.join(PHOTO_SUFFIXES)}")


def is_photo(path: Path) -> bool:
    """Return whether a path has the name of an image file that is not hidden, as macOS's `._1.jpg` is."""
    return path.suffix.lower() in PHOTO_SUFFIXES and not path.name.startswith(".") and not path.is_dir()


def known_sets() -> list[str]:
    """Return the names of the label sets that come with the exporter."""
    return sorted(path.stem for path in folder("labels").glob("*.json"))


def list_photos(photos: str | PathLike[str] | Iterable[str | PathLike[str]] | None) -> list[Path]:
    """Return the files of photos: those of a folder, one file, several; None is for the photos that come with it.

    Raises:
        ParityError: there are none, or they are not paths of files.
    """
    if photos is None:
        return example_photos()
    if isinstance(photos, str | PathLike):
        if Path(photos).is_dir():
            return photos_in(Path(photos))
        photos = [photos]
    files = list(photos)
    if not files:
        raise ParityError("photos are empty: pass a folder, the path of a photo or several, or None for example photos")
    for file in files:
        if not isinstance(file, str | PathLike):
            raise ParityError(f"photos have a {type(file).__name__}: must be paths")
        if not Path(file).exists():
            raise ParityError(f"photo not found: {file}")
    return list(map(Path, files))


def read_class_names(labels: str | Sequence[str] | None) -> list[str]:
    """Return the names of labels of a set or a file, in the order of their ids; an id without a label has an empty one.

    `labels` may be these names already. None is for a task without labels, which has no names.
    """
    if labels is None:
        return []
    if not isinstance(labels, str):
        return list(labels)
    # Imports protobuf, which the help of commands must not.
    from savedmodel_bakery.label_files import LabelFileError, read_label_file

    path = Path(labels)
    if labels in known_sets():
        path = folder("labels") / f"{labels}.json"
    try:
        read = read_label_file(path)
    except LabelFileError as error:
        raise LabelError(str(error)) from error
    except (OSError, ValueError) as error:  # ValueError for a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        sets = ", ".join(known_sets())
        raise LabelError(
            f"cannot read labels {quote(labels)} ({reason}): must be {sets} or the path of a file"
        ) from error
    names = [""] * (read[-1].id + 1)
    for label in read:
        names[label.id] = label.name
    return names
