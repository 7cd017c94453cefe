"""Reads predictions and labels of photos, as people save them.

Predictions  .csv   file, then one column per label; or file, label and probability
             .json  {"file": [0.1, 0.9]} or {"file": {"label": 0.9}}
             .npz   one array per photo, by the name of its file
             a function of a photo's path, which returns such a row
Labels       a folder with one folder per label, as Keras and torchvision read it; or a .csv of file and label
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.answers import Labelled, Predictions, Runner
from savedmodel_bakery.exporter.evidence.evidence import by_photo, by_size, read_by_photo, read_npz
from savedmodel_bakery.files import read_small

_MAX_LABELLED = 100  # photos; more make the search slow
_LONG = ["label", "probability"]


def read_predictions(source: str, photos: Sequence[Path], runner: Runner, class_names: Sequence[str]) -> Predictions:
    """Read what a network answered for photos; see the module. Labels must be among `class_names`.

    Raises:
        EvidenceError: it can't be read, names a photo or a label that isn't there, or has rows of several lengths.
        SourceError: the function can't be imported.
    """
    found = read_by_photo(source, photos, Predictions.kind, _read_predictions)
    rows = {path: _row(source, path, row, class_names) for path, row in found.items()}
    lengths = {path.name: len(row) for path, row in rows.items()}
    if len(set(lengths.values())) > 1:
        (one, length), (other, other_length) = min(lengths.items(), key=_second), max(lengths.items(), key=_second)
        raise EvidenceError(f"{source} has {length} numbers for {one}, and {other_length} for {other}")
    are_named = all(isinstance(row, Mapping) for row in found.values())
    return Predictions(list(rows), np.stack(list(rows.values())), runner, class_names if are_named else ())


def read_labelled(source: Path, photos: Sequence[Path], runner: Runner, class_names: Sequence[str]) -> Labelled:
    """Read the right labels of photos; see the module. For a folder, the photos are those in it.

    Raises:
        EvidenceError: it can't be read, names a photo or a label that isn't there, or has no photo.
    """
    if source.is_dir():
        folders = [folder for folder in sorted(source.iterdir()) if folder.is_dir()]
        named = {photo: folder.name for folder in folders for photo in sorted(folder.iterdir()) if photo.is_file()}
    else:
        try:
            rows = _read_csv(source)
            texts = {row[0]: row[1] for row in (rows[1:] if rows and rows[0][0].lower() == "file" else rows)}
        except (OSError, ValueError, IndexError) as error:
            raise EvidenceError(f"cannot read the labels of photos in {source}: {error}") from error
        named = by_photo(texts, photos, f"{source} has labels")
    if not named:
        raise EvidenceError(f"{source} has no labelled photos: must be a folder with one folder of photos per label")
    _check_labels(str(source), set(named.values()), class_names)
    named = _some(named)
    return Labelled(list(named), np.array([class_names.index(label) for label in named.values()]), runner)


def _some(named: Mapping[Path, str]) -> dict[Path, str]:
    """Return some of the photos, the smallest of each label in turn."""
    ranks: Counter[str] = Counter()
    order = {}
    for photo in by_size(list(named)):
        order[photo] = ranks[named[photo]], named[photo]
        ranks[named[photo]] += 1
    return {photo: named[photo] for photo in sorted(order, key=lambda photo: order[photo])[:_MAX_LABELLED]}


def _second(item: tuple[str, int]) -> int:
    return item[1]


def _read_predictions(path: Path) -> Mapping[str, Any]:
    match path.suffix.lower():
        case ".csv":
            return _from_csv(_read_csv(path))
        case ".json":
            content = json.loads(read_small(path))
            if not isinstance(content, dict):
                raise ValueError("must be an object: predictions by the name of a photo's file")
            return content
        case ".npz":
            return read_npz(path)
    raise ValueError("must be a .csv, .json or .npz file, or MODULE:FUNCTION")


def _read_csv(path: Path) -> list[list[str]]:
    return [row for row in csv.reader(read_small(path).decode("utf-8-sig").splitlines()) if row]


def _from_csv(rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    if not rows:
        return {}
    first = [cell.strip() for cell in rows[0]]
    if [cell.lower() for cell in first[1:]] == _LONG:
        found: dict[str, Any] = {}
        for name, label, probability in rows[1:]:
            found.setdefault(name, {})[label] = float(probability)
        return found
    try:
        numbers = list(map(float, first[1:]))
    except ValueError:
        return {name: dict(zip(first[1:], map(float, cells), strict=True)) for name, *cells in rows[1:]}
    return {first[0]: numbers, **{name: list(map(float, cells)) for name, *cells in rows[1:]}}


def _row(source: str, path: Path, row: Any, class_names: Sequence[str]) -> np.ndarray:
    """Return the predictions for a photo as float64 [units], NaN for labels that are not among them."""
    if isinstance(row, Mapping):
        labels = {str(label): value for label, value in row.items()}
        _check_labels(source, set(labels), class_names)
        row = [labels.get(name, np.nan) for name in class_names]
        numbers = np.array(row, np.float64)
        if np.isfinite(numbers).any():
            return numbers
    else:
        try:
            numbers = np.asarray(row, np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        numbers = numbers[0] if numbers.ndim == 2 and len(numbers) == 1 else numbers
        if numbers.ndim == 1 and len(numbers) and np.isfinite(numbers).all():
            return numbers
    raise EvidenceError(f"{source}: the predictions for {path.name} must be finite numbers, one per output or label")


def _check_labels(source: str, labels: set[str], class_names: Sequence[str]) -> None:
    if not class_names:
        raise EvidenceError(f"{source} has labels; pass the --labels of the network too")
    unknown = sorted(labels - set(class_names))
    if unknown:
        raise EvidenceError(
            f"{source} has the label {unknown[0]!r}, which is not one of the {len(class_names)} of --labels"
        )
