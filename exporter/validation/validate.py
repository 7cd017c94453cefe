"""What every bake proves of its staged SavedModel before it is published, and what it leaves in it as evidence."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.exporter import labels, publish, sources
from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.recipe import Recipe, read_toml
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.validation import goldens, parity, reference, verification
from savedmodel_bakery.exporter.validation import requests as questions
from savedmodel_bakery.exporter.validation.tolerance import Tolerance

PARITY_FILE = Path("assets.extra") / "parity.json"

# So many photos are asked about at once, which bounds what their files take of memory.
_BATCH = 100

# So many photos are shown, as their pictures take a megabyte each.
_MAX_SHOWN = 100

_SIGNATURES = ("top_k", "preprocess", "serving_default")


@dataclass(frozen=True)
class Proof:
    """How a SavedModel's answers compare.

    Attributes:
        agreement: with the network's, on the same pixels.
        report: with those of the reference pipeline.
        shown: the photos that are farthest from the reference, with their pictures.
    """

    agreement: verification.Agreement
    report: parity.Report
    shown: Sequence[parity.Compared]


def prove(
    version: Path,
    network: Network,
    recipe: Recipe,
    names: Sequence[str],
    *,
    name: str,
    photos: Sequence[Path],
    tolerance: Tolerance,
) -> Proof:
    """Ask a staged version about photos, compare, and write goldens, warm-up requests and the report into it.

    Args:
        version: its folder, which has an `assets.extra`.
        network: what was baked.
        recipe: how.
        names: class names in the order of class ids.
        name: the model's, as it will be served.
        photos: one or more files.
        tolerance: of the comparison with the reference; also of that with the network where the recipe has it compute
            in 16 bits.

    Raises:
        VerificationError: the SavedModel can't be loaded or run, or answers otherwise than the network.
        ParityError: a photo can't be read. Where the report isn't within tolerance is for the caller to say.
    """
    shown = reference.fit(reference.read_upright(photos[0], recipe.preprocessing), recipe.preprocessing)
    shown = shown.round().clip(0, 255).astype(np.uint8)
    kept = goldens.questions([questions.read_photo(photo) for photo in photos[: goldens.MAX_PHOTOS]], shown)
    comparison = _Comparison(network, recipe, names, tolerance)
    rounding = verification.ROUNDING if recipe.optimisation.precision == "float32" else tolerance
    agreement, answered = verification.Agreement(0, 0.0), []
    for some in _batches(photos):
        found = _ask(version, some, kept)
        agreement += verification.verify(found.answers, found.defaults, network.call, recipe, names, rounding)
        comparison.add(found.answers)
        answered += found.goldens
        kept = []  # asked once
    goldens.write(version, name, answered)
    report = comparison.report()
    (version / PARITY_FILE).write_text(json.dumps(report.to_json(), indent=2) + "\n")
    return Proof(agreement, report, comparison.shown)


class _Answered(NamedTuple):
    """What a version said: of photos by `top_k` and `preprocess`, their labels by `serving_default`, and goldens."""

    answers: list[questions.PhotoAnswer]
    defaults: list[str]
    goldens: list[Any]


def _ask(version: Path, photos: Sequence[Path], kept: Sequence[Any]) -> _Answered:
    about = questions.about_photos(photos, _SIGNATURES)
    each = len(_SIGNATURES)
    try:
        answered = questions.ask(version, [*about, *kept])
    except questions.SessionError as failed:
        photo, signature = divmod(len(failed.answered), each)
        if photo < len(photos) and _SIGNATURES[signature] == "serving_default":
            # It fails where a picture can't be read; what top_k answered about it just before says more.
            (error,) = questions.outputs_of(failed.answered[photo * each])["error"]
            if error:
                raise ParityError(f"the baked graph cannot read {photos[photo]}: {error.decode()}") from failed
        raise
    top_k, preprocess, default = (answered[: len(about)][place::each] for place in range(each))
    labels_given = [questions.outputs_of(log)["output_0"][0].decode() for log in default]
    return _Answered(questions.read_photo_answers(photos, top_k, preprocess), labels_given, answered[len(about) :])


def _batches(photos: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for start in range(0, len(photos), _BATCH):
        yield photos[start : start + _BATCH]


def review(
    version: Path, photos: Sequence[Path], tolerance: Tolerance, progress: Callable[[str], None]
) -> tuple[parity.Report, Sequence[parity.Compared]]:
    """Compare a version that was baked earlier with the reference pipeline of its source, which must be there still.

    Args:
        version: its folder.
        photos: one or more files.
        tolerance: how far probabilities may be apart.
        progress: told what is being done, in a few words.

    Returns:
        The report, and the photos that are farthest from the reference, with their pictures.

    Raises:
        BakeError: the version was not baked here, its source or labels are gone, or a photo can't be read.
    """
    path = version / publish.RECIPE_FILE
    if not path.is_file():
        raise ParityError(f"{version} holds no {publish.RECIPE_FILE}; give the folder of a version that was baked here")
    values = read_toml(path)
    recipe = Recipe.from_values(values)
    names = labels.read_labels(recipe.source.labels)
    progress(f"loading {recipe.source.model}")
    network = sources.read_network(recipe.source.model, sources.SourceOptions.of_recipe(values))
    progress(f"comparing {len(photos)} photos")
    comparison = _Comparison(network, recipe, names, tolerance)
    for some in _batches(photos):
        answered = questions.ask(version, questions.about_photos(some, ("top_k", "preprocess")))
        comparison.add(questions.read_photo_answers(some, answered[::2], answered[1::2]))
    return comparison.report(), comparison.shown


class _Comparison:
    """What a graph answered, compared with the reference pipeline of its source batch by batch."""

    def __init__(self, network: Network, recipe: Recipe, names: Sequence[str], tolerance: Tolerance) -> None:
        self._recipe, self._names, self._tolerance = recipe, names, tolerance
        self._wanted, self._departures = parity.reference_recipe(recipe, network.recipe)
        self._network = partial(verification.probabilities, network.call, self._wanted)
        self._photos: list[parity.PhotoParity] = []
        self.shown: list[parity.Compared] = []

    def add(self, answers: Sequence[questions.PhotoAnswer]) -> None:
        """Compare some answers.

        Raises:
            ParityError: Pillow can't read a photo.
            VerificationError: the network's outputs are not what the recipe says they are.
        """
        compared = parity.compare(answers, self._network, self._wanted, self._names, self._tolerance)
        self._photos += (one.parity for one in compared)
        self.shown = heapq.nlargest(_MAX_SHOWN, [*self.shown, *compared], key=lambda one: one.parity.distance())

    def report(self) -> parity.Report:
        """How all that was added compares."""
        limit = parity.PIXEL_LIMITS[self._recipe.preprocessing.decode]
        return parity.Report(self._recipe.source.model, self._departures, self._tolerance, limit, self._photos)
