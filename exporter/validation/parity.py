"""Compares the responses of a baked graph with the reference pipeline of its source, photo by photo."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE
from savedmodel_bakery.exporter.recipe import PIXELS, SCALES, Preprocessing, Recipe, describe_scale
from savedmodel_bakery.exporter.sources import keras_application
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.sources.training_code import FUNCTIONS
from savedmodel_bakery.exporter.tasks.task import NetworkResult, Task, Tolerance
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.agreement import run_network
from savedmodel_bakery.exporter.validation.int8_agreement import Int8Agreement
from savedmodel_bakery.exporter.validation.report import ParityReport, PhotoParity, PhotoPictures
from savedmodel_bakery.exporter.validation.session import PhotoResponse

# Mean difference of pixels by the recipe's `decode`. Rounding and another build of libjpeg stay far below 0.5, a wrong
# recipe exceeds it. Fast decoding itself changed photos of 12 megapixels by 0.7 (antialiased) to 1.6 levels.
_PIXEL_LIMITS = {"exact": 0.5, "fast": 3.0}

_THUMBNAIL = (1200, 300)

# Number of photos kept with their pictures, which take a megabyte each.
_MAX_PICTURES = 100

# Fields that determine the pixels: the source's own values are right, whatever the user states.
_IMAGE_FIELDS = ("size", "crop", "resize", "antialias", "scale", "channels")


def reference_preprocessing(
    baked: Preprocessing, known: Mapping[str, Any]
) -> tuple[Preprocessing, dict[str, tuple[Any, Any]]]:
    """Return the preprocessing of the reference pipeline: the source's own values where `known`.

    Also returns where the baked one departs from it: name to (baked, reference).
    """
    own = {name: known[name] for name in _IMAGE_FIELDS if name in known}
    expected = dataclasses.replace(baked, **own)
    pairs = {name: (getattr(baked, name), getattr(expected, name)) for name in _IMAGE_FIELDS}
    return expected, {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def recipe_doubts(preprocessing: Preprocessing, network: Network) -> list[str]:
    """Return what is implausible about a recipe that no source knows, each in a line with the likely fix."""
    return [*_doubt_orientation(preprocessing), *_doubt_scale(preprocessing, network)]


def _doubt_orientation(preprocessing: Preprocessing) -> list[str]:
    if preprocessing.like is None or preprocessing.orientation == "ignore":
        return []
    return [
        f"the recipe has orientation {preprocessing.orientation}, but {name} does not rotate photos by their EXIF "
        "data; if the training did not do so otherwise, bake with --orientation ignore"
        for name, prepared in FUNCTIONS.items()
        if name in map(str.strip, preprocessing.like.split(",")) and "orientation" in prepared
    ]


def _doubt_scale(preprocessing: Preprocessing, network: Network) -> list[str]:
    if network.application and not network.scaling_layer and not preprocessing.like:
        like = f"{keras_application.PREFIX}{network.application}"
        prepared = keras_application.preprocessing(like)
        usual = {name: prepared[name] for name in ("scale", "channels")}
        stated = {"scale": describe_scale(*preprocessing.mean_and_std), "channels": preprocessing.channels}
        if stated != usual and preprocessing.channels != "GRAY":
            described, expected = (
                " and ".join(f"{name} {values[name]}" for name in usual) for values in (stated, usual)
            )
            return [
                f"the recipe has {described}, but the weights of {network.application} in keras.applications were "
                f"trained with {expected}; if the model was not trained otherwise, bake with --like {like}"
            ]
    if preprocessing.mean_and_std == SCALES["caffe"] and preprocessing.channels == "RGB":
        return ["scale caffe with channels RGB: networks with this scale were trained on BGR; check --channels"]
    return []


def _doubt_second_scale(recipe: Recipe, network: Network) -> list[str]:
    if not network.scaling_layer or network.scales_second or recipe.second_preprocessing.mean_and_std != SCALES[PIXELS]:
        return []
    return [
        f"the layer {network.scaling_layer!r} scales the first image only, and image_2 has the scale {PIXELS} too; if "
        "the network does not scale it otherwise, state its scale in [image_2]"
    ]


class ParityCheck:
    """Compares the responses of a baked graph with the reference pipeline, batch by batch."""

    def __init__(self, network: Network, recipe: Recipe, task: Task, tolerance: Tolerance) -> None:
        self._network, self._recipe, self._task, self._tolerance = network.call, recipe, task, tolerance
        self._doubts = [*recipe_doubts(recipe.preprocessing, network), *_doubt_second_scale(recipe, network)]
        self._first: tuple[np.ndarray, NetworkResult] | None = None
        self._answers_alike: bool | None = None  # whether all outputs are those for the first photo; None for one photo
        self._preprocessing, self._departures = reference_preprocessing(recipe.preprocessing, network.recipe)
        self._second, departures = reference_preprocessing(
            recipe.second_preprocessing, network.recipe.get("image_2", {})
        )
        self._departures |= {f"image_2.{name}": pair for name, pair in departures.items()}
        self._is_int8 = recipe.optimisation.is_int8  # then `Int8Check` compares the answers
        self._pixel_limit = _PIXEL_LIMITS[recipe.preprocessing.decode]
        self._photos: list[PhotoParity] = []
        self._pictures: list[PhotoPictures] = []  # of the photos that are farthest from the reference, worst first

    def add(self, responses: Sequence[PhotoResponse]) -> None:
        """Compare responses to photos."""
        compared = [self._compare(response) for response in responses]
        self._photos += (pictures.parity for pictures in compared)
        self._pictures = heapq.nlargest(
            _MAX_PICTURES, [*self._pictures, *compared], key=lambda pictures: pictures.parity.distance()
        )

    def report(self, int8: Int8Agreement | None = None, evidence: Sequence[Mapping[str, Any]] = ()) -> ParityReport:
        """Return the report on all photos so far, with the agreement of an int8 servable and what training shows."""
        alike = "the network answers all photos alike, whatever they show; check --weights, --scale and the training"
        return ParityReport(
            self._recipe.source.model,
            self._departures,
            self._task.measure,
            self._tolerance,
            self._pixel_limit,
            self._photos,
            int8,
            [*self._doubts, *([alike] if self._answers_alike else [])],
            evidence,
            self._pictures,
        )

    def _compare_with_first(self, pixels: np.ndarray, result: NetworkResult) -> None:
        """Note whether a network answers other photos differently."""
        if self._first is None:
            self._first = pixels, result
        elif not np.array_equal(self._first[0], pixels):
            outputs = zip(self._first[1].outputs.values(), result.outputs.values(), strict=True)
            is_alike = all(one.shape == other.shape and np.allclose(one, other, atol=1e-7) for one, other in outputs)
            self._answers_alike = is_alike and self._answers_alike is not False

    def _compare(self, response: PhotoResponse) -> PhotoPictures:
        original = reference.read_upright(response.photo, self._preprocessing)
        size = original.height, original.width
        pixels = reference.fit(original, self._preprocessing)
        original.thumbnail(_THUMBNAIL)
        if response.error:
            parity = PhotoParity(response.photo.name, error=response.error)
        else:
            (normalised,) = reference.normalise(pixels[np.newaxis], self._preprocessing)
            others = dict(response.others.arrays)
            levels = [np.abs(response.pixels - pixels)]
            if response.others.second is not None:
                second = reference.fit(reference.read_upright(response.others.second, self._second), self._second)
                (others[SECOND_IMAGE],) = reference.normalise(second[np.newaxis], self._second)
                levels.append(np.abs(response.second_pixels - second))
            result = NetworkResult(run_network(self._network, normalised, self._recipe, others), size)
            self._compare_with_first(pixels, result)
            comparison = self._task.compare(response.answers, result, self._tolerance)
            mean = max(float(each.mean()) for each in levels)
            parity = PhotoParity(
                response.photo.name,
                pixels_mean=mean,
                pixels_max=max(float(each.max()) for each in levels),
                difference=comparison.difference,
                answer=comparison.answer,
                reference_answer=comparison.expected,
                caveat=comparison.caveat,
                doubts=comparison.doubts,
                is_within=(self._is_int8 or comparison.is_within) and mean <= self._pixel_limit,
            )
        return PhotoPictures(parity, original, response.pixels, pixels)
