"""Validates a servable: a staged version before it is published, or a published one later."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.errors import ParityError, VerificationError
from savedmodel_bakery.exporter import publish, sources
from savedmodel_bakery.exporter.network_outputs import dtypes, ends_in_sigmoid, shapes, trace
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import Quantisation
from savedmodel_bakery.exporter.sources.network import Network
from savedmodel_bakery.exporter.tasks.choose import choose_task, read_class_names
from savedmodel_bakery.exporter.tasks.task import Task, Tolerance
from savedmodel_bakery.exporter.validation import reference
from savedmodel_bakery.exporter.validation.agreement import Agreement, Original, check_agreement, source_network
from savedmodel_bakery.exporter.validation.goldens import (
    MAX_PHOTOS,
    golden_requests,
    golden_tolerances,
    write_goldens,
)
from savedmodel_bakery.exporter.validation.int8_agreement import Int8Check, check_min_agreement
from savedmodel_bakery.exporter.validation.other_values import NOTHING, OtherValues, read_values
from savedmodel_bakery.exporter.validation.parity import ParityCheck
from savedmodel_bakery.exporter.validation.report import ParityReport
from savedmodel_bakery.exporter.validation.session import (
    PREPROCESS,
    SECOND_PREPROCESS,
    PhotoResponse,
    SessionProcess,
    decode_photo_responses,
    decode_row,
    photo_requests,
    read_photo,
)
from savedmodel_bakery.storage.folders import writing

# Photos that are compared at once, which limits the memory that their files take.
_BATCH = 100


class Int8Evaluation(NamedTuple):
    """How an int8 servable is compared with the float32 network."""

    photos: Sequence[Path]
    min_agreement: float  # share of photos that must have the same labels
    quantisation: Quantisation


class Validation(NamedTuple):
    """How a SavedModel's responses compare."""

    agreement: Agreement | None  # with the network on the same pixels; None for precision int8, see the parity report
    onnx_agreement: Agreement | None  # with the ONNX model that the network was converted from, if there is one
    parity: ParityReport


def validate_and_record(
    version: Path,
    session: SessionProcess,
    network: Network,
    recipe: Recipe,
    task: Task,
    *,
    model_name: str,
    evidence: Sequence[Mapping[str, Any]],
    photos: Sequence[Path],
    others: Mapping[Path, OtherValues],
    tolerance: Tolerance,
    warm_up: Collection[str],
    onnx: Original | None = None,
    int8: Int8Evaluation | None = None,
) -> Validation:
    """Run photos through a staged version, compare, and write goldens, warm-up requests and the report into it.

    The `others` are the values of other inputs for each photo. `tolerance` is that of the comparison with the
    reference, and for a precision below float32 of that with the network too. `warm_up` has the signatures that a
    server prepares. `int8` replaces the comparison of
    probabilities by one of labels.

    Raises:
        VerificationError: the SavedModel can't be loaded or run, or its responses differ from the network's or from
            those of `onnx`.
        PublishError: a file can't be written into the version.
        ParityError: a photo can't be read. A report beyond tolerance doesn't raise: see `ParityReport.check`.
    """
    golden = golden_requests(
        task,
        [(read_photo(photo), others.get(photo, NOTHING)) for photo in photos[:MAX_PHOTOS]],
        [
            reference.fit(reference.read_upright(photos[0], each), each).round().clip(0, 255).astype(np.uint8)
            for each in [recipe.preprocessing, *([recipe.second_preprocessing] if others else [])]
        ],
        _pixel_signatures(recipe),
    )
    check = ParityCheck(network, recipe, task, tolerance)
    int8_check = None
    if int8 is not None:
        int8_check = Int8Check(
            network.call, recipe, task, min_agreement=int8.min_agreement, quantisation=int8.quantisation
        )
    source = source_network(network.call, recipe, tolerance)
    agreement = onnx_agreement = Agreement(0, 0.0)
    for batch in _batches(list(dict.fromkeys([*photos, *(int8.photos if int8 else ())]))):
        responses = _run(session, version, task, batch, others, _pixel_signatures(recipe))
        # They run while this process compares the photos.
        golden_responses = session.start(version, golden) if golden else None
        if int8 is None or int8_check is None:
            agreement += check_agreement(responses, source, recipe, task)
        else:
            int8_check.add([response for response in responses if response.photo in int8.photos])
        if onnx is not None:
            onnx_agreement += _check_onnx(responses, onnx, recipe, task)
        check.add(responses)
        if golden_responses is not None:
            logs = golden_responses()
            with writing(version):
                least = tolerance if recipe.optimisation.precision in ("bfloat16", "float16") else None
                write_goldens(version, model_name, logs, golden_tolerances(logs, least), warm_up)
            golden = []  # once is enough
    report = check.report(None if int8_check is None else int8_check.agreement(), evidence)
    with writing(version):
        (version / publish.PARITY_FILE).write_text(json.dumps(report.to_json(), indent=2) + "\n")
    return Validation(None if int8 else agreement, None if onnx is None else onnx_agreement, report)


def _check_onnx(responses: Sequence[PhotoResponse], onnx: Original, recipe: Recipe, task: Task) -> Agreement:
    try:
        return check_agreement(responses, onnx, recipe, task)
    except VerificationError as error:
        raise VerificationError(f"the comparison with --reference failed: {error}") from error


def _run(
    session: SessionProcess,
    version: Path,
    task: Task,
    photos: Sequence[Path],
    others: Mapping[Path, OtherValues],
    pixels: Sequence[str],
) -> list[PhotoResponse]:
    signatures = _image_signatures(task, rejecting=False)
    logs = session.run(version, photo_requests(photos, signatures, others, pixels))
    responses = decode_photo_responses(photos, signatures, others, logs)
    for response in responses:
        if response.error:
            raise ParityError(f"the baked graph cannot read {response.photo}: {response.error}")
    strict = _image_signatures(task, rejecting=True)  # they fail without a photo's name if it can't be read
    rows = map(decode_row, session.run(version, photo_requests(photos, strict, others)) if strict else ())
    return [
        replace(response, answers={**response.answers, **{name: next(rows) for name in strict}})
        for response in responses
    ]


def _pixel_signatures(recipe: Recipe) -> tuple[str, str]:
    """Return the signatures that return what a network receives of a photo, and of its second photo."""
    return PREPROCESS, SECOND_PREPROCESS if recipe.second_image.image_2 else PREPROCESS


def _image_signatures(task: Task, *, rejecting: bool) -> list[str]:
    """Return the task's signatures that take images and reject a bad one, or those that report it in its row."""
    return [
        name
        for name, signature in task.signatures().items()
        if signature.takes == "images" and signature.rejects_bad_images == rejecting
    ]


def _batches(photos: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for start in range(0, len(photos), _BATCH):
        yield photos[start : start + _BATCH]


def compare_with_source(
    version: Path,
    recipe: Recipe,
    photos: Sequence[Path],
    tolerance_of: Callable[[Task], Tolerance],
    progress: Callable[[str], None],
    *,
    min_agreement: float | None = None,
    input_values: Path | None = None,
    judge: Callable[[Network], Sequence[Mapping[str, Any]]] = lambda _: (),
) -> ParityReport:
    """Compare a published version with the reference pipeline of its source, which must still exist.

    `judge` compares the recipe with what training shows, given the network. `input_values` is the file with values of
    other inputs; see `other_values`.

    The recipe is the one that it was baked with; model, labels and weights may have been moved since. Returns the
    report on all photos.
    """
    share = check_min_agreement(min_agreement, recipe)
    class_names = read_class_names(recipe)
    with SessionProcess() as session:
        progress(f"loading {recipe.source.model}")
        network = sources.read_network(recipe.to_values())
        others = read_values(network.others, photos, input_values)
        evidence = judge(network)
        progress(f"comparing {len(photos)} photos")
        traced = trace(network.call, recipe, network.others)
        task = choose_task(
            recipe, shapes(traced), class_names, dtypes=dtypes(traced), ends_in_sigmoid=ends_in_sigmoid(traced)
        )
        check = ParityCheck(network, recipe, task, tolerance_of(task))
        is_int8 = recipe.optimisation.is_int8
        int8_check = Int8Check(network.call, recipe, task, min_agreement=share, quantisation=None) if is_int8 else None
        signatures = _image_signatures(task, rejecting=False)
        for batch in _batches(photos):
            logs = session.run(version, photo_requests(batch, signatures, others, _pixel_signatures(recipe)))
            responses = decode_photo_responses(batch, signatures, others, logs)
            check.add(responses)
            if int8_check is not None:
                int8_check.add(responses)
    return check.report(None if int8_check is None else int8_check.agreement(), evidence)
