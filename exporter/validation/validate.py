"""Validates a classifier: a staged version before it is published, or a published one later."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.exporter import labels, publish, sources
from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.agreement import ROUNDING, Agreement, check_agreement
from savedmodel_bakery.exporter.validation.goldens import MAX_PHOTOS, golden_requests, write_goldens
from savedmodel_bakery.exporter.validation.parity import ParityCheck
from savedmodel_bakery.exporter.validation.report import Tolerance
from savedmodel_bakery.exporter.validation.requests import (
    PhotoResponse,
    PredictionLog,
    decode_outputs,
    decode_photo_responses,
    photo_requests,
    read_photo,
)
from savedmodel_bakery.exporter.validation.session import SessionError, run_requests

PARITY_FILE = Path("assets.extra") / "parity.json"

# Photos per process, which limits the memory that their files take.
_BATCH = 100

_SIGNATURES = ("top_k", "preprocess", "serving_default")


def validate_and_record(
    version: Path,
    network: Network,
    recipe: Recipe,
    class_names: Sequence[str],
    *,
    model_name: str,
    photos: Sequence[Path],
    tolerance: Tolerance,
) -> tuple[Agreement, ParityCheck]:
    """Run photos through a staged version, compare, and write goldens, warm-up requests and the report into it.

    Args:
        version: its folder, which has an `assets.extra`.
        network: the source's.
        recipe: the recipe that was baked.
        class_names: in the order of class ids.
        model_name: the name that it will be served under.
        photos: one or more files.
        tolerance: of the comparison with the reference; of that with the network too, if the recipe's precision is
            below float32.

    Returns:
        How the SavedModel's responses compare with the network on the same pixels, and with the reference pipeline.

    Raises:
        VerificationError: the SavedModel can't be loaded or run, or its responses differ from the network's.
        PublishError: a file can't be written into the version.
        ParityError: a photo can't be read. A report beyond tolerance doesn't raise: see `ParityReport.check`.
    """
    pixels = reference.fit(reference.read_upright(photos[0], recipe.preprocessing), recipe.preprocessing)
    golden = golden_requests(
        [read_photo(photo) for photo in photos[:MAX_PHOTOS]], pixels.round().clip(0, 255).astype(np.uint8)
    )
    check = ParityCheck(network, recipe, class_names, tolerance)
    rounding = ROUNDING if recipe.optimisation.precision == "float32" else tolerance
    agreement = Agreement(0, 0.0)
    for batch in _batches(photos):
        results = _run(version, batch, golden)
        agreement += check_agreement(
            results.responses, results.default_labels, network.call, recipe, class_names, rounding
        )
        check.add(results.responses)
        if golden:
            with publish.writing(version):
                write_goldens(version, model_name, results.goldens)
            golden = []  # once is enough
    with publish.writing(version):
        (version / PARITY_FILE).write_text(json.dumps(check.report().to_json(), indent=2) + "\n")
    return agreement, check


class _Results(NamedTuple):
    """Responses to photos, the labels of `serving_default`, and the golden requests with their responses."""

    responses: list[PhotoResponse]
    default_labels: list[str]
    goldens: list[PredictionLog]


def _run(version: Path, photos: Sequence[Path], golden: Sequence[PredictionLog]) -> _Results:
    requests = photo_requests(photos, _SIGNATURES)
    step = len(_SIGNATURES)
    try:
        logs = run_requests(version, [*requests, *golden])
    except SessionError as failure:
        photo, signature = divmod(len(failure.completed), step)
        if photo < len(photos) and _SIGNATURES[signature] == "serving_default":
            # It fails if the image can't be read; the response of top_k just before has the reason.
            (error,) = decode_outputs(failure.completed[photo * step])["error"]
            if error:
                raise ParityError(f"the baked graph cannot read {photos[photo]}: {error.decode()}") from failure
        raise
    top_k, preprocess, default = (logs[place : len(requests) : step] for place in range(step))
    default_labels = [decode_outputs(log)["output_0"][0].decode() for log in default]
    return _Results(decode_photo_responses(photos, top_k, preprocess), default_labels, logs[len(requests) :])


def _batches(photos: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for start in range(0, len(photos), _BATCH):
        yield photos[start : start + _BATCH]


def compare_with_source(
    version: Path, recipe: Recipe, photos: Sequence[Path], tolerance: Tolerance, progress: Callable[[str], None]
) -> ParityCheck:
    """Compare a published version with the reference pipeline of its source, which must still exist.

    Args:
        version: its folder.
        recipe: the recipe it was baked with; model, labels and weights may have been moved since.
        photos: one or more files.
        tolerance: how far probabilities may differ.
        progress: called with each step, in a few words.

    Raises:
        BakeError: the source or labels are missing, or a photo can't be read.
    """
    class_names = labels.read_labels(recipe.answers.labels)
    progress(f"loading {recipe.source.model}")
    network = sources.read_network(recipe.to_values())
    progress(f"comparing {len(photos)} photos")
    check = ParityCheck(network, recipe, class_names, tolerance)
    for batch in _batches(photos):
        logs = run_requests(version, photo_requests(batch, ("top_k", "preprocess")))
        check.add(decode_photo_responses(batch, logs[::2], logs[1::2]))
    return check
