"""The values of inputs beside the image for the photos that a servable is validated on: of a file, or random."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE
from savedmodel_bakery.errors import ParityError, RecipeError
from savedmodel_bakery.exporter.network_inputs import STRING, OtherInput, OtherInputs
from savedmodel_bakery.files import read_small


@dataclass(frozen=True)
class OtherValues:
    """What a network takes beside a photo."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # by input, without the batch axis; text is bytes
    second: Path | None = None  # the second photo, if it takes two


NOTHING = OtherValues()
"""For a network that takes photos only."""


def read_values(others: OtherInputs, photos: Sequence[Path], file: Path | None) -> dict[Path, OtherValues]:
    """Return the values for each photo; none if the network has no other inputs.

    A `file` states them all: a JSON object by the photos' names, of objects by input; `image_2` is the path of a photo,
    relative to the file's folder. Without it they are the same random values in each run, by the photo's name: floats
    of a standard normal distribution, whole numbers 0 or 1; and the second photo is the next one.

    Raises:
        RecipeError: values are missing, or don't fit the inputs.
    """
    if file is not None and not others:
        raise RecipeError(f"--input-values {file} cannot be used: the network has no inputs beside the image")
    if file is not None:
        stated = _read(file)
        return {photo: _values_of(photo, others, stated, file) for photo in photos}
    if not others:
        return {}
    texts = [name for name, other in others.items() if other.dtype == STRING]
    if texts:
        raise RecipeError(
            f"the input {texts[0]!r} takes text, so random values would say nothing: pass --input-values FILE, with "
            "values for each photo"
        )
    following = dict(zip(photos, [*photos[1:], *photos[:1]], strict=True))
    return {
        photo: OtherValues(
            {name: _random(photo, name, other) for name, other in others.items() if name != SECOND_IMAGE},
            following[photo] if SECOND_IMAGE in others else None,
        )
        for photo in photos
    }


def describe_random(others: OtherInputs) -> str:
    """Return what `read_values` does without a file, in a few words."""
    names = [name for name in others if name != SECOND_IMAGE]
    parts = [f"random values for {', '.join(names)}"] if names else []
    parts += [f"the {SECOND_IMAGE} of a photo is the next one"] if SECOND_IMAGE in others else []
    return "; ".join(parts)


def _random(photo: Path, name: str, other: OtherInput) -> np.ndarray:
    generator = np.random.default_rng(zlib.crc32(f"{photo.name} {name}".encode()))
    dtype = _numpy_dtype(other)
    is_whole = dtype.kind in "biu"
    values = generator.integers(0, 2, other.shape) if is_whole else generator.standard_normal(other.shape)
    return np.asarray(values).astype(dtype)


def _numpy_dtype(other: OtherInput) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if other.dtype == "bfloat16" else other.dtype)


def _read(file: Path) -> Mapping[str, Any]:
    try:
        stated = json.loads(read_small(file))
    except (OSError, ValueError, RecursionError) as error:
        raise RecipeError(f"cannot read --input-values {file}: {error}") from error
    if not isinstance(stated, dict) or not all(isinstance(values, dict) for values in stated.values()):
        raise RecipeError(f"invalid --input-values {file}: must be a JSON object by photo, of objects by input")
    return stated


def _values_of(photo: Path, others: OtherInputs, stated: Mapping[str, Any], file: Path) -> OtherValues:
    values = stated.get(photo.name, {})
    if values.keys() != others.keys():
        raise RecipeError(f"{file} has the inputs {_listed(values)} for {photo.name}: must be {_listed(others)}")
    arrays = {
        name: _array(values[name], name, other, photo, file) for name, other in others.items() if name != SECOND_IMAGE
    }
    if SECOND_IMAGE not in others:
        return OtherValues(arrays)
    second = file.parent / str(values[SECOND_IMAGE])
    if not second.is_file():
        raise ParityError(f"{file} has the {SECOND_IMAGE} {str(second)!r} for {photo.name}, which is not a file")
    return OtherValues(arrays, second)


def _array(value: Any, name: str, other: OtherInput, photo: Path, file: Path) -> np.ndarray:
    try:
        read = np.array(value)
        if other.dtype == STRING:
            is_allowed, array = read.dtype.kind == "U", np.vectorize(str.encode, otypes=[object])(read)
        else:
            array = read.astype(_numpy_dtype(other))
            is_allowed = read.dtype.kind in "biuf" and (array.dtype.kind not in "biu" or bool(np.all(array == read)))
    except (TypeError, ValueError, OverflowError):
        is_allowed = False
    if not is_allowed or array.shape != other.shape:
        raise RecipeError(f"{file} has {name} {value!r:.60} for {photo.name}: must be {other}")
    return np.asarray(array)


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted(names)) or "none"
