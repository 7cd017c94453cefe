"""Finds the recipe that makes of photos what the network received in training.

Each candidate is a recipe; the reference pipeline makes its pixels, and a straight line from pixels to inputs gives
mean and standard deviation. What is left is the distance, in levels of 0..255. The search changes one group of fields
at a time, takes the nearest candidate, and begins again until nothing comes nearer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.errors import EvidenceError, RecipeError
from savedmodel_bakery.exporter.evidence.inputs import Inputs
from savedmodel_bakery.exporter.recipe import RESIZE_METHODS, SCALES, Preprocessing, describe_scale
from savedmodel_bakery.exporter.validation import reference

SAME = 0.7
"""Levels: rounding of pixels is a distance of 0.3, and of rows and columns 0.4; what is farther is another recipe."""
_NEARER = 0.01
# Shares of the shorter side that training code often keeps.
_FRACTIONS = ("1", "7/8", "224/256", "0.9", "0.95", "0.8")


class Fit(NamedTuple):
    """How inputs follow from pixels."""

    distance: float  # root mean square, in levels
    mean: Sequence[float]  # of R, G, B, or of gray three times
    std: Sequence[float]
    channels: str


class Alternative(NamedTuple):
    """The nearest recipe with another value of a field."""

    value: Any
    distance: float


class Found(NamedTuple):
    """What the evidence says of the fields.

    Attributes:
        preprocessing: the nearest recipe; its scale and channels are those of the start if they are fixed.
        fit: how the inputs follow from its pixels.
        alternatives: by field, the nearest recipe with another value; None if no photo tells values apart.
    """

    preprocessing: Preprocessing
    fit: Fit
    alternatives: Mapping[str, Alternative | None]

    @property
    def distance(self) -> float:
        """The distance between the recipe's inputs and those of training, in levels."""
        return self.fit.distance

    @property
    def channels(self) -> str:
        """The order of channels in which the inputs are nearest."""
        return self.fit.channels

    def line(self) -> dict[str, Any]:
        """Return the scale and the channels that follow from the inputs."""
        return {"scale": _scale(self.fit), "channels": self.fit.channels}

    def agrees_with(self, stated: Preprocessing) -> bool:
        """Return whether the inputs follow from the pixels by the stated scale."""
        return _levels_off(self.fit, *stated.mean_and_std) < SAME


def _crops(current: Preprocessing) -> Iterator[dict[str, Any]]:
    """Return crops, with the usual rounding of their margins and with others, and orientations."""
    side = max(current.size)
    shares = *_FRACTIONS, f"{side}/{side + 32}"
    shorts = sorted({side, *(math.floor(side / share) for share in (0.875, 0.9, 0.95, 0.97)), side + 8, side + 32})
    crops = [
        *((crop, None) for crop in ("none", "letterbox")),
        *itertools.product(shares, (None, "down", "even")),
        *itertools.product([f"short:{short}" for short in shorts], (None, "down", "up")),
    ]
    for orientation, (crop, margin) in itertools.product(("exif", "ignore"), crops):
        yield {"orientation": orientation, "crop": crop, "crop_margin": margin}


def _resizes(_current: Preprocessing) -> Iterator[dict[str, Any]]:
    for resize, antialias in itertools.product(RESIZE_METHODS, (False, True)):
        yield {"resize": resize, "antialias": antialias}


def _one(field: str, *values: Any) -> Callable[[Preprocessing], Iterator[dict[str, Any]]]:
    return lambda _current: iter([{field: value} for value in values])


_GROUPS: dict[tuple[str, ...], Callable[[Preprocessing], Iterator[dict[str, Any]]]] = {
    ("crop", "orientation", "crop_margin"): _crops,
    ("resize", "antialias"): _resizes,
    ("jpeg_dct",): _one("jpeg_dct", "accurate", "fast"),
    ("alpha",): _one("alpha", "background", "drop"),
}


class Search:
    """Compares recipes with the evidence, each once, for some seconds."""

    def __init__(self, inputs: Inputs, seconds: float) -> None:
        self._inputs = inputs
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._fits: dict[Preprocessing, Fit] = {}
        self._pictures: dict[tuple[Path, Any], Any] = {}

    def find(self, start: Preprocessing, fixed: frozenset[str]) -> Found:
        """Find the nearest recipe, beginning with `start`; the fields that are `fixed` stay as they are."""
        best = self._improve(start, fixed)
        alternatives = {
            field: self._alternative(best, field, values)
            for fields, values in _GROUPS.items()
            for field in fields
            if field not in fixed
        }
        found = Found(best, self.fit(best), alternatives)
        if found.distance > SAME:
            return found
        line: dict[str, Any] = {name: value for name, value in found.line().items() if name not in fixed}
        return found._replace(preprocessing=dataclasses.replace(best, **line))

    def _improve(self, best: Preprocessing, fixed: frozenset[str]) -> Preprocessing:
        """Return the nearest recipe."""
        while True:
            before = best
            for make in _GROUPS.values():
                for values in make(best):
                    candidate = _changed(best, values, fixed)
                    if candidate and self.fit(candidate).distance < self.fit(best).distance - _NEARER:
                        best = candidate
            if best == before:
                return best

    def _alternative(self, best: Preprocessing, field: str, make: Any) -> Alternative | None:
        """Return the nearest recipe that differs from the best one in a field; None if none gives other pixels."""
        nearest = None
        for values in make(best):
            candidate = _changed(best, values, frozenset())
            if candidate is None or getattr(candidate, field) == getattr(best, field):
                continue
            others = [name for name in values if name != field and getattr(candidate, name) != getattr(best, name)]
            if others:
                continue
            distance = self.fit(candidate).distance
            if nearest is None or distance < nearest.distance:
                nearest = Alternative(getattr(candidate, field), distance)
        return nearest

    def fit(self, candidate: Preprocessing) -> Fit:
        """Return how the inputs follow from a candidate's pixels."""
        if candidate not in self._fits:
            if time.monotonic() > self._end:
                raise EvidenceError(
                    f"the search for the recipe has not ended within {self._seconds:g} s; pass smaller photos, or more "
                    "--search-seconds"
                )
            pixels = np.stack([reference.fit(self._read(path, candidate), candidate) for path in self._inputs.photos])
            self._fits[candidate] = fit_line(pixels.astype(np.float64), self._inputs.arrays)
        return self._fits[candidate]

    def _read(self, path: Path, candidate: Preprocessing) -> Any:
        key = path, (candidate.orientation, candidate.jpeg_dct, candidate.alpha, candidate.background, candidate.white)
        if key not in self._pictures:
            self._pictures[key] = reference.read_upright(path, candidate)
        return self._pictures[key]


def _changed(best: Preprocessing, values: Mapping[str, Any], fixed: frozenset[str]) -> Preprocessing | None:
    """Return a recipe with other values; None if they are fixed or don't go together."""
    values = {name: value for name, value in values.items() if getattr(best, name) != value}
    if not values or not fixed.isdisjoint(values):
        return None
    try:
        return dataclasses.replace(best, **values)
    except RecipeError:
        return None


def fit_line(pixels: np.ndarray, inputs: np.ndarray) -> Fit:
    """Fit inputs = (pixel - mean) / std for each colour, by least squares, in the nearest order of channels."""
    if inputs.shape[-1] == 1:
        fits = [_fit_order(pixels @ reference.LUMA, inputs, "GRAY")]
    else:
        fits = [_fit_order(pixels, inputs[..., ::step], order) for order, step in (("RGB", 1), ("BGR", -1))]
    return min(fits, key=lambda fit: fit.distance)


def _fit_order(pixels: np.ndarray, inputs: np.ndarray, channels: str) -> Fit:
    means, stds, squares = [], [], 0.0
    for colour in range(inputs.shape[-1]):
        x, y = pixels[..., colour].ravel(), inputs[..., colour].ravel()
        spread = x.var()
        slope = ((x - x.mean()) * (y - y.mean())).mean() / spread if spread else 0.0
        slope = slope if slope > 0 else 1 / 255
        offset = y.mean() - slope * x.mean()
        squares += float(np.mean((x - (y - offset) / slope) ** 2))
        means.append(-offset / slope)
        stds.append(1 / slope)
    repeat = 3 // len(means)
    return Fit(math.sqrt(squares / len(means)), means * repeat, stds * repeat, channels)


def _scale(fit: Fit) -> str:
    """Return the scale, by its name if it makes the same of pixels."""
    for name, (mean, std) in SCALES.items():
        if _levels_off(fit, mean, std) < SAME:
            return name
    return describe_scale([round(mean, 2) for mean in fit.mean], [float(f"{std:.4g}") for std in fit.std])


def _levels_off(fit: Fit, mean: Sequence[float], std: Sequence[float]) -> float:
    """Return by how many levels a pixel seems to differ, at most, if it is scaled otherwise than it was in training."""
    lines = zip(fit.mean, fit.std, mean, std, strict=True)
    return max(
        abs((level - one_mean) / one_std - (level - other_mean) / other_std) * other_std
        for one_mean, one_std, other_mean, other_std in lines
        for level in (0, 255)
    )
