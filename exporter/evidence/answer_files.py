"""Reads predictions and labels of photos, as people save them.

Predictions  .csv   file, then one column per label; or file, label and probability
             .json  {"file": [0.1, 0.9]} or {"file": {"label": 0.9}}
             .npz   one array per photo, by the name of its file
             a function of a photo's path, which returns such a row
Labels       a folder with one folder per label, as Keras and torchvision read it; or a .csv of file and label

The separators of a .csv may be commas, semicolons or tabs. Columns may be numbered as the network's outputs are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.answers import Labelled, Predictions, Runner
from savedmodel_bakery.exporter.evidence.evidence import (
    Source,
    by_photo,
    choose,
    read_by_photo,
    read_npz,
    title_of,
    unique,
)
from savedmodel_bakery.exporter.resources import PHOTO_SUFFIXES, is_photo
from savedmodel_bakery.files import read_small

_MAX_LABELLED, _MAX_LABELLED_PIXELS = 100, 60_000_000  # photos; more make the search slow
_LEAST_DOUBT = 1e-6
_LONG = ["label", "probability"]
_SEPARATOR, _QUOTED = re.compile(r"[,;\t]"), re.compile(r'"[^"]*"')


def read_predictions(source: Source, photos: Sequence[Path], runner: Runner, class_names: Sequence[str]) -> Predictions:
    """Read what a network answered for photos; see the module. Labels must be among `class_names`.

    Raises:
        EvidenceError: it can't be read, names a photo or label that isn't there, or its rows have several lengths.
        SourceError: the function can't be imported.
    """
    read_file = partial(_read_predictions, photos=photos, class_names=class_names)
    found = read_by_photo(source, photos, Predictions.kind, read_file)
    title = title_of(source)
    rows = {path: _row(title, path, row, class_names) for path, row in found.items()}
    lengths = {path.name: len(row) for path, row in rows.items()}
    if len(set(lengths.values())) > 1:
        (one, length), *_, (other, other_length) = sorted(lengths.items(), key=itemgetter(1))
        raise EvidenceError(f"{title} has {length} numbers for {one}, and {other_length} for {other}")
    chosen = choose(list(rows), worth=lambda path: _doubt(rows[path]))
    are_named = all(isinstance(row, Mapping) for row in found.values())
    return Predictions(chosen, np.stack([rows[path] for path in chosen]), runner, class_names if are_named else ())


def read_labelled(source: Path, photos: Sequence[Path], runner: Runner, class_names: Sequence[str]) -> Labelled:
    """Read the right labels of photos; see the module. For a folder, the photos are those in it.

    Raises:
        EvidenceError: the file can't be read, names a photo or a label that isn't there, or has no photo.
    """
    if source.is_dir():
        named = _photos_by_folder(source)
    else:
        try:
            rows = _read_csv(source)
            short = [row for row in rows if len(row) < 2]
            if short:
                raise ValueError(f"a row has only {short[0][0]!r}: must be file and label, separated by a comma")
            texts = unique((row[0], row[1]) for row in rows[_has_header(rows, photos) :])
        except (OSError, ValueError, csv.Error) as error:
            raise EvidenceError(f"cannot read the labels of photos in {source}: {error}") from error
        named = by_photo(texts, photos, f"{source} has labels")
    if not named:
        raise EvidenceError(
            f"{source} has no labelled photos: must be a folder with one folder of photos per label, or a .csv file of "
            "file and label"
        )
    _check_labels(str(source), set(named.values()), class_names)
    chosen = _choose_labelled(named)
    return Labelled(chosen, np.array([class_names.index(named[photo]) for photo in chosen]), runner)


def photos_in_folders(folder: Path) -> list[Path]:
    """Return the photos that are compared of a folder with one folder per label; none if there are none."""
    return _choose_labelled(_photos_by_folder(folder))


def _choose_labelled(labels: Mapping[Path, str]) -> list[Path]:
    return choose(list(labels), labels.__getitem__, most=_MAX_LABELLED, most_pixels=_MAX_LABELLED_PIXELS)


def _photos_by_folder(source: Path) -> dict[Path, str]:
    return {photo: folder.name for folder in _visible_folders(source) for photo in _photos_below(folder)}


def _photos_below(folder: Path) -> Iterator[Path]:
    """Yield the photos in a folder and in the folders below it, as Keras's `image_dataset_from_directory` does."""
    yield from sorted(filter(is_photo, folder.iterdir()))
    for below in _visible_folders(folder):
        if not below.is_symlink():
            yield from _photos_below(below)


def _visible_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read_predictions(path: Path, photos: Sequence[Path], class_names: Sequence[str]) -> Mapping[str, Any]:
    match path.suffix.lower():
        case ".csv":
            return _from_csv(_read_csv(path), photos, class_names)
        case ".json":
            content = json.loads(read_small(path), object_pairs_hook=unique)
            if not isinstance(content, dict):
                raise ValueError("must be an object: predictions by the name of a photo's file")
            return content
        case ".npz":
            return read_npz(path)
    raise ValueError("must be a .csv, .json or .npz file, or MODULE:FUNCTION")


def _read_csv(path: Path) -> list[list[str]]:
    """Return the rows that are not blank; what separates the first two cells separates all of them."""
    lines = [line for line in read_small(path).decode("utf-8-sig").splitlines() if line.strip()]
    separator = _SEPARATOR.search(_QUOTED.sub("", lines[0])) if lines else None
    rows = csv.reader(lines, delimiter=separator[0] if separator else ",")
    return [cells for row in rows if any(cells := [cell.strip() for cell in row])]


def _has_header(rows: Sequence[Sequence[str]], photos: Sequence[Path]) -> bool:
    """Return whether the first row has the names of columns: it does not begin with the name of a photo."""
    name = PurePath(rows[0][0] if rows else "")
    is_photo_name = name.suffix.lower() in PHOTO_SUFFIXES or name.name in {photo.name for photo in photos}
    return bool(rows) and not is_photo_name


def _from_csv(rows: Sequence[Sequence[str]], photos: Sequence[Path], class_names: Sequence[str]) -> dict[str, Any]:
    """Return the rows by photo."""
    has_header = _has_header(rows, photos)
    header = list(rows[0][1:]) if has_header else []
    numbered = enumerate(rows[has_header:], 1 + has_header)
    if [cell.lower() for cell in header] != _LONG:
        return unique((name, _from_wide(number, cells, header, class_names)) for number, (name, *cells) in numbered)
    pairs: list[tuple[tuple[str, str], float]] = []
    for number, (name, *cells) in numbered:
        if len(cells) != len(_LONG):
            raise ValueError(f"row {number} has {len(cells)} values after the file: must be label and probability")
        pairs.append(((name, cells[0]), _number(cells[1])))
    found: dict[str, dict[str, float]] = {}
    for (name, label), probability in unique(pairs).items():
        found.setdefault(name, {})[label] = probability
    return found


def _from_wide(number: int, cells: Sequence[str], header: Sequence[str], class_names: Sequence[str]) -> Any:
    """Return the numbers of a row, by label if the header has labels; or in their order, if it numbers the outputs."""
    numbers = list(map(_number, cells))
    if not header:
        return numbers
    if len(numbers) == 1 and len(header) == 2:  # a sigmoid, which is the probability of the second label
        numbers = [1 - numbers[0], numbers[0]]
    if len(numbers) != len(header):
        raise ValueError(f"row {number} has {len(numbers)} values after the file, the first row names {len(header)}")
    named = list(zip(header, numbers, strict=True))
    if set(header) - set(class_names) and all(cell.isdecimal() for cell in header):
        return [value for _, value in sorted(named, key=lambda pair: int(pair[0]))]
    return dict(named) if len(set(header)) == len(header) else numbers


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number: must be written like 0.935 or 9.35e-1") from error


def _row(source: str, path: Path, row: Any, class_names: Sequence[str]) -> np.ndarray:
    """Return the predictions for a photo as float64 [units], NaN for labels that are not among them."""
    if isinstance(row, Mapping):
        labels = list(map(str, row))
        _check_labels(source, set(labels), class_names)
        known = dict(zip(labels, _numbers(source, path, list(row.values())), strict=True))
        return np.array([known.get(name, np.nan) for name in class_names])
    return _numbers(source, path, row)


def _doubt(row: np.ndarray) -> float:
    """Return how much predictions would change with pixels, if they are probabilities: those near 0 and 1 do little."""
    known = row[~np.isnan(row)]
    are_probabilities = known.min() >= 0 and known.max() <= 1
    return max(float((known * (1 - known)).sum()), _LEAST_DOUBT) if are_probabilities else 1.0


def _numbers(source: str, path: Path, values: Any) -> np.ndarray:
    try:
        numbers = np.atleast_1d(np.asarray(values).astype(np.float64, casting="same_kind"))
    except Exception:  # any object has a conversion of its own
        numbers = np.array([])
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
