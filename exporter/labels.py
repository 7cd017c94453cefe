"""Reads labels, from a label set that comes with the exporter or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.errors import LabelError
from savedmodel_bakery.label_files import Label, LabelFileError, read_label_file


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


def read_labels(name_or_path: str) -> list[str]:
    """Read the names of labels whose ids are 0, 1, 2 …, in that order.

    Raises:
        LabelError: there is no such set or file, it isn't valid, or it has other ids.
    """
    table = read_label_table(name_or_path)
    missing = [class_id for class_id, label in enumerate(table) if class_id != label.id]
    if missing:
        raise LabelError(
            f"{name_or_path} has {len(table)} names but none for class id {missing[0]}: ids must count from 0 without "
            "gaps"
        )
    return [label.name for label in table]


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
