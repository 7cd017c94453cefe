"""Reads class names, from a label set that comes with the exporter or from a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.errors import LabelError


def known_sets() -> list[str]:
    """Return the names of the label sets that come with the exporter."""
    return sorted(path.stem for path in resources.folder("labels").glob("*.json"))


def read_labels(name_or_path: str) -> list[str]:
    """Read class names in the order of class ids.

    A `.json` file contains a list of names, a list of objects `{"id": 0, "name": "tench"}`, or an object from id to
    name. A `.csv` file has a header with the column `name` and, if rows are not in the order of ids, `id`. Any other
    file has one name per line.

    Raises:
        LabelError: there is no such set or file, or its ids are not 0, 1, 2 …
    """
    path = Path(name_or_path)
    if name_or_path in known_sets():
        path = resources.folder("labels") / f"{name_or_path}.json"
    try:
        text = path.read_text(encoding="utf-8-sig")  # a byte order mark is not part of the first name
    except UnicodeDecodeError as error:
        raise LabelError(f"labels {name_or_path!r} are not valid UTF-8") from error
    except (OSError, ValueError) as error:  # ValueError for a NUL character
        reason = error.strerror if isinstance(error, OSError) else error
        raise LabelError(
            f"cannot read labels {name_or_path!r} ({reason}): must be {', '.join(known_sets())} or the path of a file"
        ) from error
    if path.suffix == ".json":
        names = _parse_json(path, text)
    elif path.suffix == ".csv":
        names = _parse_csv(path, text)
    else:
        names = text.splitlines()
    if not names:
        raise LabelError(f"labels {name_or_path!r} are empty: at least one name is required")
    blank = [class_id for class_id, name in enumerate(names) if not name.strip()]
    if blank:
        raise LabelError(f"labels {name_or_path!r} have a blank name for class id {blank[0]}")
    return names


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


def _parse_csv(path: Path, text: str) -> list[str]:
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not isinstance(rows[0].get("name"), str):
        raise LabelError(f"{path} is not a label file: the CSV header must have the column name, and may have id")
    try:
        by_id = {int(row["id"]) if "id" in row else index: row["name"] for index, row in enumerate(rows)}
    except (ValueError, TypeError) as error:
        raise LabelError(f"{path} has an id that is not a number: {error}") from error
    return _in_order(path, by_id, len(rows))


def _parse_json(path: Path, text: str) -> list[str]:
    try:
        content = json.loads(text)
        if not isinstance(content, (list, dict)):
            raise TypeError(f"it contains a {type(content).__name__}")
        if isinstance(content, dict):
            by_id = {int(key): value for key, value in content.items()}
        elif content and isinstance(content[0], dict):
            by_id = {int(entry["id"]): entry["name"] for entry in content}
        else:
            by_id = dict(enumerate(content))
    except RecursionError as error:
        raise LabelError(f"{path} is not a label file: its JSON is nested too deeply") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabelError(
            f"{path} is not a label file ({error}): must be a list of names, a list of objects with id and name, or an "
            "object from id to name"
        ) from error
    return _in_order(path, by_id, len(content))


def _in_order(path: Path, by_id: dict[int, str], entries: int) -> list[str]:
    if len(by_id) != entries:
        raise LabelError(f"{path} has {entries} entries but only {len(by_id)} different class ids")
    missing = [class_id for class_id in range(len(by_id)) if class_id not in by_id]
    if missing:
        raise LabelError(
            f"{path} has {len(by_id)} names but none for class id {missing[0]}: ids must count from 0 without gaps"
        )
    names = [by_id[class_id] for class_id in range(len(by_id))]
    if not all(isinstance(name, str) for name in names):
        raise LabelError(f"{path} has a name that is not text")
    return names
