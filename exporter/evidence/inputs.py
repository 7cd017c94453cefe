"""Evidence: what the network received in training for some photos, as arrays.

A straight line from the pixels of a recipe to the inputs gives mean and standard deviation. What is left is the
distance, in levels of 0..255: the mean over photos of the root mean square.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.errors import EvidenceError
from savedmodel_bakery.exporter.evidence.evidence import (
    EXACT,
    SAME,
    Certainty,
    Evidence,
    Fit,
    Source,
    choose,
    describe_line,
    digest_of,
    farther,
    levels_off,
    read_by_photo,
    read_npz,
    title_of,
)
from savedmodel_bakery.exporter.evidence.search import PIXELS
from savedmodel_bakery.exporter.recipe import Preprocessing
from savedmodel_bakery.exporter.validation import reference


class Inputs(Evidence):
    """The network's inputs for some photos, normalised as in training; see `Evidence`."""

    kind = "inputs"
    groups = PIXELS
    noise = 0.01

    def __init__(self, photos: Sequence[Path], arrays: np.ndarray) -> None:
        """Keep the photos and `arrays`, float64 [photos, height, width, channels]."""
        self.photos, self._arrays = photos, arrays
        self.digest = digest_of(photos, arrays)
        self.size = (arrays.shape[1], arrays.shape[2])

    def fit(self, pixels: np.ndarray, candidate: Preprocessing) -> Fit:
        """See Evidence. The levels are those of the usual white: others would make the same photo darker."""
        fit = fit_line(pixels.astype(np.float64), self._arrays)
        return fit if self.white is None else fit._replace(distance=fit.distance * candidate.white / self.white)

    def is_same(self, fit: Fit) -> bool:
        """See Evidence."""
        return fit.distance <= SAME

    def is_exact(self, fit: Fit) -> bool:
        """See Evidence."""
        return fit.distance <= EXACT

    def ends_search(self, fit: Fit) -> bool:
        """See Evidence."""
        return self.is_same(fit)

    def certainty(self, best: Fit, other: Fit) -> Certainty:
        """See Evidence."""
        return farther(best.distance, other.distance, 1.0)

    def contradicted(self, fit: Fit, stated: Preprocessing) -> list[str]:
        """See Evidence."""
        assert fit.line
        is_other = {
            "channels": stated.channels != fit.follows["channels"],
            "scale": levels_off(*fit.line, *stated.mean_and_std) >= SAME,
        }
        return [name for name, value in is_other.items() if value]

    def shown(self, fit: Fit) -> str:
        """See Evidence."""
        return f"{fit.distance:.2f} levels"


def read_inputs(source: Source, photos: Sequence[Path]) -> Inputs:
    """Read the inputs of photos from an `.npz` file by their names, or from a function of a photo's path.

    Raises:
        EvidenceError: the file can't be read, names a photo that isn't there or none of them, or an array isn't one
            image of numbers, or not of the same shape as the others.
        SourceError: the function can't be imported.
    """
    found = read_by_photo(source, photos, Inputs.kind, read_npz)
    arrays = {path: _image(path, found[path]) for path in choose(list(found))}
    first, *others = arrays
    for path in others:
        if arrays[path].shape != arrays[first].shape:
            raise EvidenceError(
                f"{title_of(source)}: the input for {path.name} has shape {list(arrays[path].shape)}, that for "
                f"{first.name} {list(arrays[first].shape)}; all must have one shape"
            )
    return Inputs(list(arrays), np.stack(list(arrays.values())))


def _image(path: Path, array: Any) -> np.ndarray:
    """Return an array as float64 [height, width, channels]; one with the channels first is turned."""
    try:
        numbers = np.asarray(array)
    except Exception as error:  # any object has a conversion of its own
        raise EvidenceError(f"the input for {path.name} is not an array: {error}") from error
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


def fit_line(pixels: np.ndarray, inputs: np.ndarray) -> Fit:
    """Fit inputs = (pixel - mean) / std for each colour, by least squares, in the nearest order of channels."""
    if inputs.shape[-1] == 1:
        fits = [_fit_order(pixels @ reference.LUMA, inputs, "GRAY")]
    else:
        fits = [_fit_order(pixels, inputs[..., ::step], order) for order, step in (("RGB", 1), ("BGR", -1))]
    return min(fits, key=lambda fit: fit.distance)


def _fit_order(pixels: np.ndarray, inputs: np.ndarray, channels: str) -> Fit:
    means, stds, squares = [], [], np.zeros(len(inputs))
    for colour in range(inputs.shape[-1]):
        x, y = pixels[..., colour].ravel(), inputs[..., colour].ravel()
        spread = x.var()
        slope = ((x - x.mean()) * (y - y.mean())).mean() / spread if spread else 0.0
        slope = slope if slope > 0 else 1 / 255
        offset = y.mean() - slope * x.mean()
        squares += np.mean(((x - (y - offset) / slope) ** 2).reshape(len(inputs), -1), axis=1)
        means.append(-offset / slope)
        stds.append(1 / slope)
    repeat = 3 // len(means)
    line = means * repeat, stds * repeat
    return Fit(float(np.sqrt(squares / len(means)).mean()), {"scale": describe_line(*line), "channels": channels}, line)
