"""Evidence: what the network received in training for some photos, as arrays."""

from __future__ import annotations

import hashlib
import itertools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.sources.user_model import FUNCTION_NAME, import_callable
from savedmodel_bakery.exporter.validation import reference

_MAX_PHOTOS, _MAX_PIXELS = 8, 6_000_000
"""Of the photos that are compared, the smallest; more tell nothing new, and each recipe that is tried resizes them."""


@dataclass(frozen=True)
class Inputs:
    """The network's inputs for some photos.

    Attributes:
        photos: their files.
        arrays: float64 [photos, height, width, channels], normalised as in training.
        digest: SHA-256 of the arrays.
    """

    photos: Sequence[Path]
    arrays: np.ndarray
    digest: str


def read_inputs(source: str, photos: Sequence[Path]) -> Inputs:
    """Read the inputs of photos from an `.npz` file by their names, or from a function of a photo's path.

    Raises:
        EvidenceError: the file can't be read, names a photo that isn't there or none of them, or an array isn't one
            image of numbers, or not of the same shape as the others.
        SourceError: the function can't be imported.
    """
    is_function = FUNCTION_NAME.fullmatch(source) is not None and not Path(source).is_file()
    if is_function:
        found = _call(source, _smallest(photos))
    else:
        named = _read_file(Path(source), photos)
        found = {path: named[path] for path in _smallest(list(named))}
    arrays = {path: _image(path, array) for path, array in found.items()}
    shapes = {path: array.shape for path, array in arrays.items()}
    if not shapes:
        raise EvidenceError(f"{source} has no inputs")
    first, *others = shapes
    for path in others:
        if shapes[path] != shapes[first]:
            raise EvidenceError(
                f"{source}: the input for {path.name} has shape {list(shapes[path])}, that for {first.name} "
                f"{list(shapes[first])}; all must have one shape"
            )
    stacked = np.stack(list(arrays.values()))
    return Inputs(list(arrays), stacked, hashlib.sha256(stacked.tobytes()).hexdigest())


def _smallest(photos: Sequence[Path]) -> list[Path]:
    """Return the smallest photos, as many as are compared."""
    pixels = {}
    for photo in photos:
        with reference.reading(photo), Image.open(photo) as picture:
            pixels[photo] = picture.width * picture.height
    smallest = sorted(pixels, key=lambda photo: (pixels[photo], photo))
    total = itertools.accumulate(pixels[photo] for photo in smallest)
    kept = [photo for photo, sum_ in zip(smallest, total, strict=True) if sum_ <= _MAX_PIXELS]
    return (kept or smallest[:1])[:_MAX_PHOTOS]


def _call(source: str, photos: Sequence[Path]) -> dict[Path, Any]:
    function = import_callable(source)
    found = {}
    for path in photos:
        try:
            found[path] = function(str(path))
        except Exception as error:  # user code can raise anything
            raise EvidenceError(f"{source} failed with {type(error).__name__} for {path}: {error}") from error
    return found


def _read_file(path: Path, photos: Sequence[Path]) -> dict[Path, Any]:
    by_name: dict[str, list[Path]] = {}
    for photo in photos:
        for start in range(len(photo.parts)):
            by_name.setdefault("/".join(photo.parts[start:]), []).append(photo)
    if not path.is_file():
        raise EvidenceError(f"no file or function with inputs: {path}")
    try:
        if not zipfile.is_zipfile(path):
            raise EvidenceError(f"{path} is not an .npz file, as numpy.savez writes it")
        with np.load(path, allow_pickle=False) as arrays:
            unknown = [name for name in arrays if len(by_name.get(name, ())) != 1]
            if unknown:
                raise EvidenceError(
                    f"{path} has inputs for {len(arrays)} photos, but {unknown[0]!r} is not the name of one of the "
                    f"{len(photos)} photos; the keys must be names of files, relative to the folder of --photos"
                )
            return {by_name[name][0]: arrays[name] for name in arrays}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise EvidenceError(f"cannot read the inputs in {path}: {error}") from error


def _image(path: Path, array: Any) -> np.ndarray:
    """Return an array as float64 [height, width, channels]; one with the channels first is turned."""
    numbers = np.asarray(array)
    if numbers.ndim == 4 and len(numbers) == 1:
        numbers = numbers[0]
    if numbers.ndim == 3 and numbers.shape[0] in (1, 3) and numbers.shape[2] not in (1, 3):
        numbers = numbers.transpose(1, 2, 0)
    if numbers.ndim != 3 or numbers.shape[2] not in (1, 3) or numbers.dtype.kind not in "fiu":
        raise EvidenceError(
            f"the input for {path.name} is {numbers.dtype} {list(numbers.shape)}: must be numbers [height, width, 1 or "
            "3], with or without an axis of 1 for the batch"
        )
    if not np.isfinite(numbers).all():
        raise EvidenceError(f"the input for {path.name} has values that are not finite")
    return numbers.astype(np.float64)
