"""Finds the label sets and example photos that come with the exporter, and reads labels."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.errors import LabelError, ParityError

_PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp")
_MAX_ID = 2**16 - 1

_ROOM = Path(__file__).resolve().parent  # resolved, because savedmodel_bakery/exporter is a link in a clone


def folder(name: str) -> Path:
    """Return the folder `labels` or `examples`: in this package if installed, at the top of a clone otherwise."""
    installed = _ROOM / name
    return installed if installed.is_dir() else _ROOM.parents[1] / name


def example_photos() -> list[Path]:
    """Return the CC0 photos that a bake is validated on by default."""
    return photos_in(folder("examples"))


def photos_in(path: Path) -> list[Path]:
    """Return the image files in a folder, sorted by name; at least one."""
    photos = sorted(file for file in path.iterdir() if file.suffix.lower() in _PHOTO_SUFFIXES and not file.is_dir())
    if not photos:
        raise ParityError(f"no photos in {path}: file names must end in {', '.join(_PHOTO_SUFFIXES)}")
    return photos


def known_sets() -> list[str]:
    """Return the names of the label sets that come with the exporter."""
    return sorted(path.stem for path in folder("labels").glob("*.json"))


def read_class_names(name_or_path: str | None) -> list[str]:
    """Read the names of labels from a set or a file, in the order of their ids; an id without a label has an empty one.

    None is for a task without labels, which has no names.
    """
    if name_or_path is None:
        return []
    # Imports protobuf, which the help of commands must not.
    from savedmodel_bakery.label_files import LabelFileError, read_label_file

    path = Path(name_or_path)
    if name_or_path in known_sets():
        path = folder("labels") / f"{name_or_path}.json"
    try:
        labels = read_label_file(path)
    except LabelFileError as error:
        raise LabelError(str(error)) from error
    except (OSError, ValueError) as error:  # ValueError for a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(
            f"cannot read labels {name_or_path!r} ({reason}): must be {', '.join(known_sets())} or the path of a file"
        ) from error
    if labels[-1].id > _MAX_ID:
        raise LabelError(f"labels {name_or_path!r} have the class id {labels[-1].id}: the highest allowed is {_MAX_ID}")
    names = [""] * (labels[-1].id + 1)
    for label in labels:
        names[label.id] = label.name
    return names
