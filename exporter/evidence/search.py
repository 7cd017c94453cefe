"""Finds the recipe that agrees best with evidence.

Each candidate is a recipe; the reference pipeline makes its pixels, and the evidence says how far they are from it. The
search changes one group of fields at a time, takes the nearest candidate, and begins again until nothing comes nearer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.errors import EvidenceError, RecipeError
from savedmodel_bakery.exporter.evidence.evidence import (
    WHITES,
    Evidence,
    Fit,
    Groups,
    combinations,
    one_of,
)
from savedmodel_bakery.exporter.recipe import LETTERBOX, LETTERBOXES, PADDED, RESIZE_METHODS, STRETCH, Preprocessing
from savedmodel_bakery.exporter.recipe.fields import fields_of
from savedmodel_bakery.exporter.validation import reference

_STARTS, _OTHER_CROPS = 4, 4
_KEPT_BYTES = 2**29  # of pixels, which several starts share
_REFINEMENTS, _OTHER_VALUES, _HIDDEN = 4, 3, 3.0
# Shares of the shorter side that training code often keeps.
_FRACTIONS = ("1", "7/8", "224/256", "0.9", "0.95", "0.8")
_DECODERS: tuple[dict[str, Any], ...] = (
    {"orientation": "exif", "jpeg_dct": "accurate", "alpha": "background"},
    {"orientation": "ignore", "jpeg_dct": "accurate", "alpha": "drop"},  # Pillow, OpenCV, Keras's load_img
    {"orientation": "ignore", "jpeg_dct": "fast", "alpha": "drop"},  # TensorFlow
)
_PADDINGS = ("0,0,0", "114,114,114", "255,255,255")  # of TensorFlow, of Ultralytics, and white


class Alternative(NamedTuple):
    """The nearest recipe with another value of a field."""

    value: Any
    fit: Fit


class Found(NamedTuple):
    """What the evidence says of the fields.

    Attributes:
        preprocessing: the nearest recipe, with the values that follow from it unless they are fixed.
        fit: how this recipe compares with the evidence.
        alternatives: the nearest recipe with another value of a field, by the field's name; None if no photo
            tells its values apart.
    """

    preprocessing: Preprocessing
    fit: Fit
    alternatives: Mapping[str, Alternative | None]


def _crops(current: Preprocessing) -> Iterator[dict[str, Any]]:
    """Return crops, with the usual rounding of their margins and with others."""
    side = max(current.size)
    shares = *_FRACTIONS, f"{side}/{side + 32}"
    shorts = sorted({side, *(math.floor(side / share) for share in (0.875, 0.9, 0.95, 0.97)), side + 8, side + 32})
    crops = [
        *((crop, None) for crop in (STRETCH, *LETTERBOXES)),
        *itertools.product(shares, (None, "down", "even")),
        *itertools.product([f"short:{short}" for short in shorts], (None, "down", "up")),
    ]
    for crop, margin in crops:
        yield {"crop": crop, "crop_margin": margin, **({"antialias": False} if crop == PADDED else {})}
    if current.crop not in LETTERBOXES:
        yield from combinations(crop=[LETTERBOX], padding=_PADDINGS)(current)


def _margins(current: Preprocessing) -> Iterator[dict[str, Any]]:
    if current.keeps_whole_photo:
        return iter([{}])
    return one_of("crop_margin", None, "up", "down", "even")(current)


def _paddings(current: Preprocessing) -> Iterator[dict[str, Any]]:
    return one_of("padding", *(_PADDINGS if current.crop in LETTERBOXES else ()))(current)


PIXELS: Groups = {
    ("crop", "crop_margin"): _crops,
    ("crop_margin",): _margins,
    ("padding",): _paddings,
    ("orientation",): one_of("orientation", "exif", "ignore"),
    ("resize", "antialias", "jpeg_dct"): combinations(  # together, as each can make up for another
        resize=RESIZE_METHODS, antialias=(False, True), jpeg_dct=("accurate", "fast")
    ),
    ("alpha",): one_of("alpha", "background", "drop"),
    ("white",): one_of("white", *WHITES[::-1]),
}
"""The values that change pixels."""

_LITTLE: Groups = {
    ("jpeg_dct",): one_of("jpeg_dct", "accurate", "fast"),
    **{fields: PIXELS[fields] for fields in (("alpha",), ("orientation",), ("crop_margin",))},
}
"""Those of them that change pixels little."""

_RESIZES = combinations(resize=RESIZE_METHODS, antialias=(False, True))


class Search:
    """Compares recipes with the evidence, each once, for some seconds."""

    def __init__(self, evidence: Evidence, seconds: float) -> None:
        self._evidence = evidence
        self._groups = {
            fields: make
            for fields, make in evidence.groups.items()
            if evidence.white is not None or fields != ("white",)
        }
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._fits: dict[Preprocessing, Fit] = {}
        self._made: dict[Preprocessing, np.ndarray] = {}
        self._pictures: dict[tuple[Path, Any], Any] = {}

    def find(self, start: Preprocessing, fixed: frozenset[str]) -> Found:
        """Find the nearest recipe, beginning with `start`; the fields that are `fixed` stay as they are."""
        evidence = self._evidence
        if evidence.white is not None and "white" not in fixed:
            start = dataclasses.replace(start, white=evidence.white)
        best = min(self._descents(start, fixed), key=lambda recipe: self.fit(recipe).distance)
        self.measure(best)
        if not evidence.is_same(self.fit(best)):
            best = min([best, *self._with_other_crops(best, fixed)], key=lambda recipe: self.fit(recipe).distance)
            self.measure(best)
        if not evidence.is_exact(self.fit(best)):
            best = self._polished(best, fixed)
            self.measure(best)
        for begin in (start, best):
            if not evidence.is_same(self.fit(best)) and evidence.order(self.fit(best)) is None:
                best = min([best, self._refine(begin, fixed)], key=lambda recipe: self.fit(recipe).distance)
        self.measure(best)
        alternatives = {
            field: self._alternative(best, field, values) for fields, values in self._groups.items() for field in fields
        }
        fit = self.fit(best)
        if evidence.is_same(fit):
            follows = {name: value for name, value in fit.follows.items() if name in fields_of(Preprocessing)}
            best = dataclasses.replace(best, **{name: follows[name] for name in follows.keys() - fixed})
        return Found(best, fit, alternatives)

    def _refine(self, best: Preprocessing, fixed: frozenset[str]) -> Preprocessing:
        """Return a nearer recipe, with values that no list has, if there is one."""
        if not fixed.isdisjoint(("scale", "channels")) or self._refitted(best) == best:
            return best
        for _ in range(_REFINEMENTS):
            begin, best = best, self._refitted(best)
            refitted = map(self._refitted, self._near(best, fixed))
            best = min([best, *refitted], key=lambda recipe: self.fit(recipe).distance)
            best = self._improve(best, fixed | {"scale", "channels"})
            self.measure(best)
            if best == begin or self._evidence.is_exact(self.fit(best)):
                break
        return best

    def _near(self, best: Preprocessing, fixed: frozenset[str]) -> Iterator[Preprocessing]:
        """Yield recipes that a line of the scale may hide: what they change in pixels, it makes up for."""
        limit = _HIDDEN * self.fit(best).distance
        for make in (*_LITTLE.values(), _RESIZES):
            candidates = filter(None, [_changed(best, values, fixed) for values in make(best)])
            nearest = sorted(candidates, key=lambda recipe: self.fit(recipe).distance)[:_OTHER_VALUES]
            yield from (recipe for recipe in nearest if self.fit(recipe).distance < limit)

    def _refitted(self, recipe: Preprocessing) -> Preprocessing:
        """Return a recipe with the scale and channels that come nearest."""
        refined = self._evidence.refine(self._pixels(recipe), recipe, self._check_time)
        return dataclasses.replace(recipe, **refined)

    def _descents(self, start: Preprocessing, fixed: frozenset[str]) -> Iterator[Preprocessing]:
        """Yield nearest recipes from several starts, until one agrees or two meet."""
        made: list[Preprocessing] = []
        for begin in self._starts(start, fixed):
            best = self._improve(self._improve(begin, fixed | {"scale", "channels"}), fixed)
            self.measure(best)
            yield best
            if self._evidence.ends_search(self.fit(best)) or best in made:
                return
            made.append(best)

    def _polished(self, best: Preprocessing, fixed: frozenset[str]) -> Preprocessing:
        """Return the nearest recipe, if several values that change pixels little have to change together."""
        free = {field for fields in self._groups for field in fields}
        makes = [make(best) for fields, make in _LITTLE.items() if free.issuperset(fields)]
        joined = (
            {name: value for part in parts for name, value in part.items()} for parts in itertools.product(*makes)
        )
        changed = filter(None, (_changed(best, values, fixed) for values in joined))
        nearest = min([best, *changed], key=lambda recipe: self.fit(recipe).distance)
        return best if nearest == best else self._improve(nearest, fixed)

    def _with_other_crops(self, best: Preprocessing, fixed: frozenset[str]) -> Iterator[Preprocessing]:
        """Yield the nearest recipes with other crops: the wrong resize can make up for the wrong crop."""
        others = filter(None, (_changed(best, values, fixed) for values in _crops(best)))
        for other in sorted(dict.fromkeys(others), key=lambda recipe: self.fit(recipe).distance)[:_OTHER_CROPS]:
            yield self._improve(self._improve(other, fixed | {"crop", "crop_margin"}), fixed)

    def _starts(self, start: Preprocessing, fixed: frozenset[str]) -> list[Preprocessing]:
        """Return recipes of common decoders, the nearest first; of several scales, as a wrong one can look right."""
        free = {field for fields in self._groups for field in fields} - fixed
        decoded = [
            dataclasses.replace(start, **{name: value for name, value in decoder.items() if name in free})
            for decoder in _DECODERS
        ]
        make = self._groups.get(("scale", "channels"))
        scaled = [_changed(each, values, fixed) for each in decoded for values in (make(each) if make else ())]
        starts = sorted(dict.fromkeys([*decoded, *filter(None, scaled)]), key=lambda recipe: self.fit(recipe).distance)
        nearest: dict[Any, Preprocessing] = {}
        for recipe in starts:
            nearest.setdefault((recipe.scale, recipe.channels) if scaled else recipe, recipe)
        return list(nearest.values())[:_STARTS]

    def _improve(self, best: Preprocessing, fixed: frozenset[str]) -> Preprocessing:
        """Return the nearest recipe."""
        while True:
            before = best
            for make in self._groups.values():
                for values in make(best):
                    candidate = _changed(best, values, fixed)
                    if candidate and self.fit(candidate).distance < self.fit(best).distance - self._evidence.noise:
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
            fit = self.fit(candidate)
            if nearest is None or fit.distance < nearest.fit.distance:
                nearest = Alternative(getattr(candidate, field), fit)
        return nearest

    def measure(self, recipe: Preprocessing) -> None:
        """Let the evidence measure what a level of the pixels changes for a recipe."""
        self._evidence.measure(self._pixels(recipe), recipe)

    def fit(self, candidate: Preprocessing) -> Fit:
        """Return how a candidate compares with the evidence."""
        if candidate not in self._fits:
            self._check_time()
            self._fits[candidate] = self._evidence.fit(self._pixels(candidate), candidate)
        return self._fits[candidate]

    def _check_time(self) -> None:
        if time.monotonic() > self._end:
            raise EvidenceError(
                f"the search for the recipe has not ended within {self._seconds:g} s; pass smaller photos, or more "
                "--search-seconds"
            )

    def _pixels(self, candidate: Preprocessing) -> np.ndarray:
        """Return the pixels that a candidate makes of the photos, whatever its scale and channels."""
        recipe = dataclasses.replace(candidate, scale="0..255", channels="RGB")
        if recipe not in self._made:
            pictures = [self._read(path, recipe) for path in self._evidence.photos]
            pixels = np.stack([reference.fit(picture, recipe) for picture in pictures])
            if (len(self._made) + 1) * pixels.nbytes > _KEPT_BYTES:
                self._made.clear()
            self._made[recipe] = pixels
        return self._made[recipe]

    def _read(self, path: Path, candidate: Preprocessing) -> Any:
        key = path, (candidate.orientation, candidate.jpeg_dct, candidate.alpha, candidate.background, candidate.white)
        if key not in self._pictures:
            self._pictures[key] = reference.read_upright(path, candidate)
        return self._pictures[key]


def _changed(best: Preprocessing, values: Mapping[str, Any], fixed: frozenset[str]) -> Preprocessing | None:
    """Return a recipe with other values; None if they are fixed or don't go together."""
    if "crop" in values and values["crop"] not in LETTERBOXES and "padding" not in fixed:
        values = {**values, "padding": _PADDINGS[0]}  # without effect
    values = {name: value for name, value in values.items() if getattr(best, name) != value}
    if not values or not fixed.isdisjoint(values):
        return None
    try:
        return dataclasses.replace(best, **values)
    except RecipeError:
        return None
