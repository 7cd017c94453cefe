"""Reads label files: the name, the id and, if stated, the colour of each label.

Uses neither TensorFlow nor NumPy, because the client reads label files too.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from savedmodel_bakery.files import read_small

Colour = tuple[int, int, int]

_MAX_ID = 2**16 - 1
_NOT_TEXT = ("Cc", "Cs")  # Unicode's categories of control characters and of surrogates


class LabelFileError(Exception):
    """The content of a label file is not valid; the message names the file."""


class Label(NamedTuple):
    """A label."""

    name: str  # its display name if the file states one; not blank
    id: int  # 0 or more
    colour: Colour | None = None  # R, G, B, 0..255


def read_label_file(path: str | Path) -> tuple[Label, ...]:
    """Read at least one label, ordered by id. Ids differ, may start above 0, and may have gaps.

    The format depends on the suffix:

    - `.json`: a list of names; an object from id to name, from name to id (Keras' `class_indices`), or from id to
      WordNet's id and name (`imagenet_class_index.json`); or a list of objects `{"id": 0, "name": "tench"}`, which may
      also have `display_name` and `colour` (`"#rrggbb"`).
    - `.csv`: a header with the column `name`, and rows in the order of ids unless there is a column `id`; the columns
      `display_name` and `colour` are optional.
    - `.pbtxt`: the label map of TensorFlow's Object Detection API,
      `item { id: 1 name: "/m/01g317" display_name: "person" }`.
    - any other: one name per line, or the ids 0, 1, 2 … each before its name (Teachable Machine); or JSON as above.

    White space around names is dropped.
    """
    path = Path(path)
    try:
        text = read_small(path).decode("utf-8-sig")  # a byte order mark is not part of the first name
    except UnicodeDecodeError as error:
        raise LabelFileError(f"labels {str(path)!r} are not valid UTF-8") from error
    parse, expected = _FORMATS.get(path.suffix.lower(), (_parse_lines, "one name per line"))
    try:
        entries = parse(text)
    except (csv.Error, KeyError, RecursionError, TypeError, ValueError, text_format.ParseError) as error:
        raise LabelFileError(f"{path} is not a label file ({error}): must contain {expected}") from error
    return _check(repr(str(path)), entries)


def check_names(names: object) -> tuple[Label, ...]:
    """Return labels, ordered by id, from a list of their names or a dict from id to name; an empty name is none.

    Raises LabelFileError.
    """
    try:
        return _check("of the list", [entry for entry in _entries(names) if entry["name"] != ""])
    except TypeError as error:
        raise LabelFileError(f"labels must be a list of names, or a dict from id to name: {error}") from error


def _check(title: str, entries: Iterable[Mapping[str, Any]]) -> tuple[Label, ...]:
    labels = sorted((_label(title, entry) for entry in entries), key=lambda label: label.id)
    if not labels:
        raise LabelFileError(f"labels {title} are empty: at least one name is required")
    if labels[-1].id > _MAX_ID:
        raise LabelFileError(f"labels {title} have the class id {labels[-1].id}: the highest allowed is {_MAX_ID}")
    different = len({label.id for label in labels})
    if different != len(labels):
        raise LabelFileError(f"labels {title} have {len(labels)} entries but only {different} different class ids")
    return tuple(labels)


def _label(title: str, entry: Mapping[str, Any]) -> Label:
    """Check an entry of a file: a mapping with `id`, `name`, `display_name` and `colour`, or some of them."""
    name, colour = entry.get("display_name") or entry.get("name"), entry.get("colour")
    try:
        label_id = int(str(entry.get("id")))  # through str, because int() truncates 1.5
    except ValueError:
        label_id = -1
    if label_id < 0:
        raise LabelFileError(f"labels {title} have the id {entry.get('id')!r}: must be a whole number, 0 or more")
    name = name.strip() if isinstance(name, str) else name
    if not isinstance(name, str) or any(unicodedata.category(character) in _NOT_TEXT for character in name):
        raise LabelFileError(
            f"labels {title} have the name {name!r} for class id {label_id}: must be text without control characters"
        )
    if not name:
        raise LabelFileError(f"labels {title} have a blank name for class id {label_id}: remove it, or name the class")
    return Label(name, label_id, _parse_colour(title, colour) if colour else None)


def _parse_colour(title: str, colour: object) -> Colour:
    if not isinstance(colour, str) or not re.fullmatch("#[0-9a-fA-F]{6}", colour):
        raise LabelFileError(f"labels {title} have the colour {colour!r}: must be #rrggbb, such as #ff8000")
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue


def _parse_lines(text: str) -> Iterable[Mapping[str, Any]]:
    if text.lstrip().startswith(("[", "{")):
        with suppress(ValueError):  # else it begins with a name such as [UNK]
            return _parse_json(text)
    lines = text.rstrip().splitlines()
    numbered = [re.fullmatch(r"\s*(\d+)\s+(.*\S)\s*", line) for line in lines]
    if all(match and int(match[1]) == number for number, match in enumerate(numbered)):
        lines = [match[2] for match in numbered if match]
    return [{"id": number, "name": line} for number, line in enumerate(lines)]


def _parse_csv(text: str) -> Iterable[Mapping[str, Any]]:
    rows = list(csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True))
    if not rows or not isinstance(rows[0].get("name"), str):
        raise ValueError("it has no column name")
    return [{"id": number, **row} for number, row in enumerate(rows)]


def _parse_json(text: str) -> Iterable[Mapping[str, Any]]:
    content = json.loads(text)
    if isinstance(content, list) and content and isinstance(content[0], dict):
        return [{**entry, "id": entry["id"]} for entry in content]
    return _entries(content)


def _entries(names: object) -> list[Mapping[str, Any]]:
    if isinstance(names, Mapping):
        if names and all(type(value) is int for value in names.values()):
            return [{"id": value, "name": key} for key, value in names.items()]
        return [{"id": key, "name": _without_wordnet_id(value)} for key, value in names.items()]
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"it contains a {type(names).__name__}")
    return [{"id": number, "name": name} for number, name in enumerate(names)]


def _without_wordnet_id(name: object) -> object:
    """Return the name in a list of WordNet's id and a name, and anything else as it is."""
    match name:
        case [str(wordnet_id), label] if re.fullmatch(r"n\d{8}", wordnet_id):
            return label
    return name


def _parse_label_map(text: str) -> Iterable[Mapping[str, Any]]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_LABEL_MAP_FILE, descriptor_pb2.FileDescriptorProto()))
    label_map: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("StringIntLabelMap"))()
    items = text_format.Parse(text, label_map, allow_unknown_field=True).item
    return [{field.name: value for field, value in item.ListFields()} for item in items]


# The fields of object_detection/protos/string_int_label_map.proto that are read here.
_LABEL_MAP_FILE = """
name: "label_map.proto"
message_type {
  name: "StringIntLabelMapItem"
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "id" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "display_name" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "StringIntLabelMap"
  field { name: "item" number: 1 type: TYPE_MESSAGE type_name: ".StringIntLabelMapItem" label: LABEL_REPEATED }
}
"""

_FORMATS = {
    ".csv": (_parse_csv, "rows after a header with the column name, and optionally id, display_name and colour"),
    ".json": (
        _parse_json,
        "a list of names, a list of objects with id and name, or an object from id to name or from name to id",
    ),
    ".pbtxt": (_parse_label_map, "items such as item { id: 1 name: 'cat' }"),
}
"""The parser of each suffix, and what it accepts."""
