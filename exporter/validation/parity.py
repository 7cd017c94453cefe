"""Parity: the baked graph against the reference pipeline of its source, photo by photo."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.requests import PhotoAnswer
from savedmodel_bakery.exporter.validation.tolerance import Tolerance

# By a recipe's `decode`: mean levels that rounding and another build of libjpeg never reach, and a wrong recipe does.
# Fast decoding itself changed photos of 12 megapixels by 0.7 (antialiased) to 1.6 levels.
PIXEL_LIMITS = {"exact": 0.5, "fast": 3.0}

_THUMBNAIL = (1200, 300)

# What decides over pixels: here a source that knows its own values is right, whatever was asked for.
_IMAGE_FIELDS = ("size", "crop", "resize", "antialias", "scale", "channels")


@dataclass(frozen=True)
class PhotoParity:
    """How one photo compares.

    Attributes:
        photo: its file name.
        pixels_mean: mean absolute difference of what the network sees, before normalising, in levels of 0..255.
        pixels_max: the largest such difference.
        probability: the largest absolute difference of a class's probability, among the best classes of either.
        label: the graph's best label.
        score: its probability by the graph.
        reference_label: the reference's best label.
        reference_score: its probability by the reference.
        top_1: whether both name the same best class.
        top_5: how many of the graph's best classes, at most 5, are among as many of the reference's.
        top_5_of: how many those are.
        error: why the graph can't read the photo; empty where it can, and only then the rest counts.
        is_within: whether it is within tolerance.
    """

    photo: str
    pixels_mean: float = 0.0
    pixels_max: float = 0.0
    probability: float = 0.0
    label: str = ""
    score: float = 0.0
    reference_label: str = ""
    reference_score: float = 0.0
    top_1: bool = False
    top_5: int = 0
    top_5_of: int = 0
    error: str = ""
    is_within: bool = False

    def distance(self) -> tuple[bool, float, float]:
        """What photos are ordered by: unreadable ones are farthest, then probabilities count, then pixels."""
        return bool(self.error), self.probability, self.pixels_mean


@dataclass(frozen=True)
class Compared:
    """One photo, with what is shown of it.

    Attributes:
        parity: how it compares.
        original: a small copy.
        graph: what the network sees of it by the graph, [height, width, 3], 0..255.
        reference: the same by the reference.
    """

    parity: PhotoParity
    original: Image.Image
    graph: np.ndarray
    reference: np.ndarray


@dataclass(frozen=True)
class Report:
    """How a baked graph compares with the reference.

    Attributes:
        model: the source.
        departures: fields of the recipe that differ from the reference's: name to (baked, reference).
        tolerance: what probabilities may be apart.
        pixel_limit: what the mean difference of pixels may be, in levels of 0..255.
        photos: one entry a photo.
    """

    model: str
    departures: Mapping[str, tuple[Any, Any]]
    tolerance: Tolerance
    pixel_limit: float
    photos: Sequence[PhotoParity]

    @property
    def is_within(self) -> bool:
        """Whether every photo is within tolerance."""
        return all(photo.is_within for photo in self.photos)

    @property
    def worst(self) -> PhotoParity:
        """The photo that is farthest from the reference."""
        return max(self.photos, key=PhotoParity.distance)

    def to_json(self) -> dict[str, Any]:
        """For `parity.json` in the version, and for machines."""
        return {
            "model": self.model,
            "is_within": self.is_within,
            "atol": self.tolerance.atol,
            "rtol": self.tolerance.rtol,
            "pixels_mean_limit": self.pixel_limit,
            "departures": {
                name: {"baked": baked, "reference": wanted} for name, (baked, wanted) in self.departures.items()
            },
            "photos": [dataclasses.asdict(photo) for photo in self.photos],
        }

    def check(self, advice: str = "") -> None:
        """Refuse what is not within tolerance.

        Args:
            advice: what the message ends with.

        Raises:
            ParityError: naming the worst photo, how far it is off, and what may be the cause.
        """
        if self.is_within:
            return
        worst = max((photo for photo in self.photos if not photo.is_within), key=PhotoParity.distance)
        if worst.error:
            raise ParityError(f"the baked graph cannot read {worst.photo}: {worst.error}")
        causes = [
            f"{name} is {baked}, the source's own is {wanted}" for name, (baked, wanted) in self.departures.items()
        ]
        raise ParityError(
            f"on {worst.photo} the baked graph gives {worst.label} {worst.score:.4f}, the reference pipeline "
            f"{worst.reference_label} {worst.reference_score:.4f}: a probability differs by {worst.probability:.4f} "
            f"(allowed is {self.tolerance.atol:g} + {self.tolerance.rtol:g} of it), pixels by {worst.pixels_mean:.2f} "
            f"levels in the mean (allowed is {self.pixel_limit:g})" + "".join(f"; {cause}" for cause in causes) + advice
        )


def reference_recipe(baked: Recipe, known: Mapping[str, Any]) -> tuple[Recipe, dict[str, tuple[Any, Any]]]:
    """The recipe of the reference pipeline: the source's own where it knows one, and photos always upright.

    Args:
        baked: the recipe of the graph.
        known: what the source knows of its recipe.

    Returns:
        The recipe, and where the baked one departs from it: name to (baked, reference).
    """
    own = {name: known[name] for name in _IMAGE_FIELDS if name in known}
    preprocessing = dataclasses.replace(baked.preprocessing, **own, orientation="exif")
    names = (*_IMAGE_FIELDS, "orientation")
    departures = {name: (getattr(baked.preprocessing, name), getattr(preprocessing, name)) for name in names}
    wanted = dataclasses.replace(baked, preprocessing=preprocessing)
    return wanted, {name: pair for name, pair in departures.items() if pair[0] != pair[1]}


def compare(
    answers: Sequence[PhotoAnswer],
    network: Callable[[np.ndarray], np.ndarray],
    recipe: Recipe,
    names: Sequence[str],
    tolerance: Tolerance,
) -> list[Compared]:
    """Compare what a graph answered about photos with the reference pipeline.

    Args:
        answers: the graph's.
        network: from float32 [batch, height, width, channels], normalised, to probabilities [batch, classes].
        recipe: of the reference.
        names: class names in the order of class ids.
        tolerance: what probabilities may be apart.

    Raises:
        ParityError: Pillow can't read a photo.
    """
    compared = []
    for answer in answers:
        original = reference.read_upright(answer.photo, recipe.preprocessing)
        pixels = reference.fit(original, recipe.preprocessing)
        original.thumbnail(_THUMBNAIL)
        if answer.error:
            photo = PhotoParity(answer.photo.name, error=answer.error)
        else:
            (probabilities,) = network(reference.normalise(pixels[np.newaxis], recipe.preprocessing))
            photo = _compare(answer, pixels, probabilities, names, tolerance, PIXEL_LIMITS[recipe.preprocessing.decode])
        compared.append(Compared(photo, original, answer.pixels, pixels))
    return compared


def _compare(
    answer: PhotoAnswer,
    pixels: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
    tolerance: Tolerance,
    pixel_limit: float,
) -> PhotoParity:
    k = len(answer.class_ids)
    best = np.argsort(-probabilities, kind="stable")[:k]
    # Of each rank, and of each class that the graph names: so a class that only one of the two names counts too.
    pairs = [(answer.scores, probabilities[best]), (answer.scores, probabilities[answer.class_ids])]
    differences = [np.abs(found - wanted) for found, wanted in pairs]
    allowed = [tolerance.atol + tolerance.rtol * wanted for _, wanted in pairs]
    levels = np.abs(answer.pixels - pixels)
    five = min(k, 5)
    return PhotoParity(
        photo=answer.photo.name,
        pixels_mean=float(levels.mean()),
        pixels_max=float(levels.max()),
        probability=float(np.max(differences)),
        label=answer.labels[0],
        score=float(answer.scores[0]),
        reference_label=names[best[0]],
        reference_score=float(probabilities[best[0]]),
        top_1=bool(best[0] == answer.class_ids[0]),
        top_5=len({*best[:five].tolist()} & {*answer.class_ids[:five].tolist()}),
        top_5_of=five,
        is_within=bool(np.all(np.less_equal(differences, allowed))) and float(levels.mean()) <= pixel_limit,
    )
