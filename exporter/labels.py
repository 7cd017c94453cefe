"""Reads labels, from a label set that comes with the exporter or from a file."""

from __future__ import annotations

from pathlib import Path

from savedmodel_bakery.errors import LabelError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.label_files import LabelFileError, read_label_file

_MAX_ID = 2**16 - 1


def known_sets() -> list[str]:
    """Return the names of the label sets that come with the exporter."""
    return sorted(path.stem for path in resources.folder("labels").glob("*.json"))


def read_class_names(name_or_path: str | None) -> list[str]:
    """Read the names of labels in the order of their ids; an id without a label has an empty name.

    Args:
        name_or_path: a set or a file, see `read_label_file`; None for a task without labels, which has no names.

    Raises:
        LabelError: there is no such set or file, it isn't valid, or it has an id above 65,535.
    """
    if name_or_path is None:
        return []
    path = Path(name_or_path)
    if name_or_path in known_sets():
        path = resources.folder("labels") / f"{name_or_path}.json"
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
