"""Reads labels, from a label set that comes with the exporter or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from savedmodel_bakery.errors import LabelError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.label_files import Label, LabelFileError, read_label_file

_MAX_ID = 2**16 - 1


def known_sets() -> list[str]:
    """Return the names of the label sets that come with the exporter."""
    return sorted(path.stem for path in resources.folder("labels").glob("*.json"))


def read_label_table(name_or_path: str) -> tuple[Label, ...]:
    """Read labels, ordered by id; ids may start above 0 and have gaps. See `read_label_file` for the formats.

    Raises:
        LabelError: there is no such set or file, or it isn't valid.
    """
    path = Path(name_or_path)
    if name_or_path in known_sets():
        path = resources.folder("labels") / f"{name_or_path}.json"
    try:
        return read_label_file(path)
    except LabelFileError as error:
        raise LabelError(str(error)) from error
    except (OSError, ValueError) as error:  # ValueError for a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(
            f"cannot read labels {name_or_path!r} ({reason}): must be {', '.join(known_sets())} or the path of a file"
        ) from error


def read_class_names(name_or_path: str | None) -> list[str]:
    """Read the names of labels in the order of their ids; an id without a label has an empty name.

    Args:
        name_or_path: a set or a file; None for a task without labels, which has no names.

    Raises:
        LabelError: there is no such set or file, it isn't valid, or it has an id above 65,535.
    """
    if name_or_path is None:
        return []
    table = read_label_table(name_or_path)
    if table[-1].id > _MAX_ID:
        raise LabelError(f"labels {name_or_path!r} have the class id {table[-1].id}: the highest allowed is {_MAX_ID}")
    names = [""] * (table[-1].id + 1)
    for label in table:
        names[label.id] = label.name
    return names


def check_ids(class_names: Sequence[str], name_or_path: str) -> None:
    """Reject labels of which an id is missing.

    Raises:
        LabelError: an id has no name.
    """
    if "" in class_names:
        count = len(class_names) - class_names.count("")
        raise LabelError(
            f"{name_or_path} has {count} names but none for class id {class_names.index('')}: ids must count from 0 "
            "without gaps"
        )


def check_pair(class_names: Sequence[str], name_or_path: str, decider: str) -> None:
    """Reject labels that aren't two, for a network with one value for the second.

    Args:
        class_names: in the order of class ids.
        name_or_path: where they come from.
        decider: the value, for the message.

    Raises:
        LabelError: they aren't two.
    """
    if len(class_names) != 2:
        raise LabelError(
            f"the network has {decider}, which decides between two labels, but labels {name_or_path!r} have "
            f"{len(class_names)}"
        )


def check_width(names: Sequence[str], name_or_path: str, width: int) -> None:
    """Reject a label set that doesn't fit the network.

    Raises:
        LabelError: the number of names is not the network's number of classes.
    """
    if len(names) != width:
        hint = ""
        if width - len(names) == 1:
            hint = "; a network with one more class than labels usually has a background class at id 0"
        raise LabelError(f"the network has {width} classes, but labels {name_or_path!r} have {len(names)}{hint}")
