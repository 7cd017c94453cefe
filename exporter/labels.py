"""Class names: one set a file, by the name of a set that comes with the exporter or by path."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.errors import LabelError


def known_sets() -> list[str]:
    """Names of the sets that come with the exporter."""
    return sorted(path.stem for path in resources.folder("labels").glob("*.json"))


def read_labels(name_or_path: str) -> list[str]:
    """Class names in the order of class ids.

    A `.json` file holds a list of names, a list of objects `{"id": 0, "name": "tench"}`, or an object from id to name;
    a `.csv` file has a header with the column `name` and, if rows aren't in the order of ids, `id`; any other file
    holds one name a line.

    Raises:
        LabelError: there is no such set or file, or its ids are not 0, 1, 2 …
    """
    path = Path(name_or_path)
    if name_or_path in known_sets():
        path = resources.folder("labels") / f"{name_or_path}.json"
    try:
        text = path.read_text(encoding="utf-8-sig")  # a byte order mark is no part of the first name
    except (OSError, UnicodeDecodeError) as error:
        raise LabelError(
            f"labels {name_or_path!r} cannot be read ({getattr(error, 'strerror', None) or 'no UTF-8'}); "
            f"allowed are {', '.join(known_sets())} and the path of a file"
        ) from error
    if path.suffix == ".json":
        names = _names_of_json(path, text)
    elif path.suffix == ".csv":
        names = _names_of_csv(path, text)
    else:
        names = text.splitlines()
    if not names:
        raise LabelError(f"labels {name_or_path!r} hold no name")
    blank = [class_id for class_id, name in enumerate(names) if not name.strip()]
    if blank:
        raise LabelError(f"labels {name_or_path!r} have a blank name for class id {blank[0]}")
    return names


def check_width(names: list[str], name_or_path: str, width: int) -> None:
    """Refuse a label set that doesn't fit the network.

    Raises:
        LabelError: the numbers differ.
    """
    if len(names) != width:
        hint = ""
        if width - len(names) == 1:
            hint = "; a network with one more than its labels usually has a background class at id 0"
        raise LabelError(f"the network has {width} classes, but labels {name_or_path!r} hold {len(names)}{hint}")


def _names_of_csv(path: Path, text: str) -> list[str]:
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not isinstance(rows[0].get("name"), str):
        raise LabelError(
            f"{path} is no label file; allowed is CSV with a header that has the column name, and maybe id"
        )
    try:
        by_id = {int(row["id"]) if "id" in row else index: row["name"] for index, row in enumerate(rows)}
    except (ValueError, TypeError) as error:
        raise LabelError(f"{path} has an id that is no number: {error}") from error
    return _in_order(path, by_id, len(rows))


def _names_of_json(path: Path, text: str) -> list[str]:
    try:
        content = json.loads(text)
        if not isinstance(content, (list, dict)):
            raise TypeError(f"it holds a {type(content).__name__}")
        if isinstance(content, dict):
            by_id = {int(key): value for key, value in content.items()}
        elif content and isinstance(content[0], dict):
            by_id = {int(entry["id"]): entry["name"] for entry in content}
        else:
            by_id = dict(enumerate(content))
    except (ValueError, KeyError, TypeError) as error:
        raise LabelError(
            f"{path} is no label file ({error}); allowed are a list of names, a list of objects with id and name, "
            "and an object from id to name"
        ) from error
    return _in_order(path, by_id, len(content))


def _in_order(path: Path, by_id: dict[int, str], entries: int) -> list[str]:
    if len(by_id) != entries:
        raise LabelError(f"{path} has {entries} entries but only {len(by_id)} different class ids")
    missing = [class_id for class_id in range(len(by_id)) if class_id not in by_id]
    if missing:
        raise LabelError(
            f"{path} has {len(by_id)} names but none for class id {missing[0]}; ids count from 0 without gaps"
        )
    names = [by_id[class_id] for class_id in range(len(by_id))]
    if not all(isinstance(name, str) for name in names):
        raise LabelError(f"{path} holds a name that is no text")
    return names
