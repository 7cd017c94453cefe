"""The calls behind each method of a client, as flows (see `calls`). Reads image files; does no network I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from savedmodel_bakery.answers.images import encode_png, list_images, read_image
from savedmodel_bakery.answers.other_inputs import IMAGE, SECOND_IMAGE, SECOND_PIXELS
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.signatures import DEFAULT_SIGNATURE, Signature, Signatures, as_array, read_signatures
from savedmodel_bakery.answers.task import ImageResult, ResultT, Task
from savedmodel_bakery.answers.tasks import find_pixels_sizes, find_task
from savedmodel_bakery.answers.tasks.labels import CLASSIFY, Classification, keep_top
from savedmodel_bakery.client.calls import (
    Call,
    Classify,
    FindModel,
    Metadata,
    ModelSpec,
    Predict,
    Regress,
    Result,
    Status,
    VersionStatus,
)
from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire import trees
from savedmodel_bakery.wire.dtypes import object_array
from savedmodel_bakery.wire.examples import Example, ScoredClass
from savedmodel_bakery.wire.status import Code

Flow = Generator[Call | FindModel, Any, Result]
Inputs = Mapping[str, Any] | None
"""Inputs of a model beside the image, by name: for one image its value, for several a row for each."""

_PIXELS = ("pixels", SECOND_PIXELS)

# A server that has replaced a version sends these for requests that were valid for the old one.
_STALE = (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.NOT_FOUND)


class Flows:
    """Creates the flows of one client, and caches the signatures of the models that it calls.

    With `find_model`, the name that it returns replaces the one in `spec` before the first call.
    """

    def __init__(self, spec: ModelSpec, find_model: Callable[[], str] | None = None) -> None:
        self._spec = spec
        self._find_model = find_model
        self._cache: dict[ModelSpec, Signatures] = {}

    def predict(
        self,
        inputs: Mapping[str, Any],
        *,
        signature: str,
        output_filter: Sequence[str],
        model: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> Flow[Prediction]:
        """See `Client.predict`."""
        own = self._spec if model is not None else (yield from self._find_spec())
        spec = own.override(model=model, version=version, label=label)
        signature = signature or DEFAULT_SIGNATURE
        return (
            yield from self._with_signatures(
                spec, lambda signatures: self._predict(spec, signatures, inputs, signature, output_filter)
            )
        )

    def unchecked_predict(self, inputs: Mapping[str, Any], *, signature: str, output_filter: Sequence[str]) -> Predict:
        """Return a Predict call that is not checked against the model's metadata; see `AmqpClient.submit`."""
        return _predict_call(self._spec, None, inputs, signature or DEFAULT_SIGNATURE, output_filter)

    def classify_examples(self, examples: Sequence[Example], *, signature: str) -> Flow[list[list[ScoredClass]]]:
        """See `Client.classify_examples`."""
        rows: list[list[ScoredClass]] = yield Classify((yield from self._find_spec()), signature, examples)
        return rows

    def regress_examples(self, examples: Sequence[Example], *, signature: str) -> Flow[list[float]]:
        """See `Client.regress_examples`."""
        values: list[float] = yield Regress((yield from self._find_spec()), signature, examples)
        return values

    def metadata(self) -> Flow[dict[str, Any]]:
        """See `Client.metadata`."""
        spec = yield from self._find_spec()
        document: dict[str, Any] = yield Metadata(spec)
        self._cache.pop(spec, None)
        with suppress(InvalidResponseError):  # the caller sees it
            self._cache[spec] = read_signatures(document)
        return document

    def status(self) -> Flow[list[VersionStatus]]:
        """See `Client.status`."""
        versions: list[VersionStatus] = yield Status((yield from self._find_spec()))
        return versions

    def classify(
        self, images: Any, *, top_k: int | None, inputs: Inputs = None
    ) -> Flow[Classification | list[Classification]]:
        """See `Client.classify`."""
        if top_k is not None and top_k < 1:
            raise ValueError(f"invalid top_k {top_k}: must be at least 1")
        results = yield from self.run_task(CLASSIFY, images, inputs)
        if isinstance(results, Classification):
            return keep_top(results, top_k)
        return [keep_top(result, top_k) for result in results]

    def answer(self, images: Any, inputs: Inputs = None) -> Flow[ImageResult | list[ImageResult]]:
        """See `Client.answer`."""
        return (yield from self.run_task(None, images, inputs))

    def run_task(self, task: Task[ResultT] | None, images: Any, inputs: Inputs = None) -> Flow[ResultT | list[ResultT]]:
        """Return the result of an image, or a list of the results of several; see `list_images`.

        Without a task, it is that of the model.
        """
        batch = list_images(images)
        if batch is not None:
            return (yield from self._run_task(task, batch, inputs or {}))
        values = {alias: _single_row(value) for alias, value in (inputs or {}).items()}
        [result] = yield from self._run_task(task, [images], values)
        return result

    def _run_task(
        self, task: Task[ResultT] | None, images: Sequence[Any], inputs: Mapping[str, Any]
    ) -> Flow[list[ResultT]]:
        contents = [read_image(image) for image in images]
        others = _check_rows(inputs, len(images))
        seconds = [read_image(image) for image in others.pop(SECOND_IMAGE, ())]
        if not contents:
            return []  # a server with batching may keep an empty request waiting
        if task is None:
            spec = yield from self._find_spec()
            results = yield from self._with_signatures(
                spec, lambda signatures: self._run_images(_own_task(signatures), contents, seconds, others)
            )
        else:
            results = yield from self._run_images(task, contents, seconds, others)
        for result, image in zip(results, images, strict=True):
            if isinstance(image, str | PathLike):
                result.keep_path(image)
        return results

    def _run_images(
        self,
        task: Task[ResultT],
        contents: Sequence[bytes | np.ndarray],
        seconds: Sequence[bytes | np.ndarray],
        others: Mapping[str, Any],
    ) -> Flow[list[ResultT]]:
        spec = yield from self._find_spec()
        signatures = self._cache.get(spec)
        if signatures is None or not _has_task(signatures, task):  # the server may have another version by now
            signatures = yield from self._fetch_signatures(spec)
        signature = _find_signature(signatures, task) if signatures else task.signature
        sizes = find_pixels_sizes(signatures, task, _PIXELS) if signatures else []
        pixels, files = {}, {}
        for place, content in enumerate(contents):
            pair = [content, *seconds[place : place + 1]]
            if [None if isinstance(each, bytes) else each.shape for each in pair] == sizes:
                pixels[place] = pair
            else:
                files[place] = [each if isinstance(each, bytes) else encode_png(each) for each in pair]
        results: dict[int, ResultT] = {}
        for name, aliases, pairs in (
            (signature, (IMAGE, SECOND_IMAGE), files),
            ("pixels", _PIXELS, pixels),
        ):
            if not pairs:
                continue
            columns = zip(*pairs.values(), strict=True)
            arrays: dict[str, Any] = {alias: _stack(column) for alias, column in zip(aliases, columns, strict=False)}
            arrays |= {alias: _rows(value, list(pairs)) for alias, value in others.items()}
            prediction = yield from self.predict(arrays, signature=name, output_filter=())
            results |= zip(pairs, task.read(prediction, batch=len(pairs)), strict=True)
        return [results[place] for place in range(len(contents))]

    def _with_signatures(self, spec: ModelSpec, run: Callable[[Signatures | None], Flow[Result]]) -> Flow[Result]:
        """Run a flow with the model's signatures; again with new ones if it fails as it would for another version."""
        cached = self._cache.get(spec)
        signatures = cached or (yield from self._fetch_signatures(spec))
        try:
            return (yield from run(signatures))
        except (RequestRefusedError, InvalidResponseError) as exc:
            if cached is None or (isinstance(exc, RequestRefusedError) and exc.code not in _STALE):
                raise
            signatures = yield from self._fetch_signatures(spec)
            if signatures == cached:
                raise
        return (yield from run(signatures))

    def _find_spec(self) -> Flow[ModelSpec]:
        """Return the client's model."""
        if self._find_model is not None:
            self._spec = replace(self._spec, name=(yield FindModel(self._find_model)))
            self._find_model = None
        return self._spec

    def _fetch_signatures(self, spec: ModelSpec) -> Flow[Signatures | None]:
        """Fetch the current signatures; None if the server does not implement metadata."""
        self._cache.pop(spec, None)
        try:
            document = yield Metadata(spec)
        except RequestRefusedError as exc:
            if exc.code is Code.UNIMPLEMENTED:
                return None
            raise
        self._cache[spec] = read_signatures(document)
        return self._cache[spec]

    def _predict(
        self,
        spec: ModelSpec,
        signatures: Signatures | None,
        inputs: Mapping[str, Any],
        signature: str,
        output_filter: Sequence[str],
    ) -> Flow[Prediction]:
        # A server of the v2 protocol may describe no signature at all.
        declared = signatures.find(signature) if signatures and signatures.by_name else None
        prediction: Prediction = yield _predict_call(spec, declared, inputs, signature, output_filter)
        cached = self._cache.get(spec)
        # The metadata of a server of the v2 protocol may state no version.
        if cached is not None and None not in (versions := {cached.version, prediction.version}) and len(versions) > 1:
            del self._cache[spec]  # the server now uses another version
        return prediction


def _own_task(signatures: Signatures | None) -> Task[Any]:
    """Return the task of a model; signatures are None if the server does not describe them."""
    if signatures is None:
        raise RequestRefusedError(
            Code.UNIMPLEMENTED, "the server does not state the model's task: call the method of its task instead"
        )
    task, _ = find_task(signatures)
    return task


def _single_row(value: Any) -> Any:
    return np.asarray(value)[np.newaxis] if isinstance(value, np.ndarray | np.generic) else [value]


def _check_rows(inputs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return inputs beside the images that have a row per image; raises ValueError for another number."""
    for alias, rows in inputs.items():
        has_rows = isinstance(rows, list | tuple) or (isinstance(rows, np.ndarray) and rows.ndim > 0)
        if not has_rows or len(rows) != count:
            given = f"{len(rows)} rows" if has_rows else "no rows"
            raise ValueError(f'invalid inputs: "{alias}" has {given}; must have {count}, one per image')
    return dict(inputs)


def _rows(rows: Any, places: Sequence[int]) -> Any:
    return rows[places] if isinstance(rows, np.ndarray) else [rows[place] for place in places]


def _stack(images: Sequence[Any]) -> np.ndarray:
    return object_array(images) if isinstance(images[0], bytes) else np.stack(images)


def _predict_call(
    spec: ModelSpec, declared: Signature | None, inputs: Mapping[str, Any], signature: str, output_filter: Sequence[str]
) -> Predict:
    if declared is None:
        arrays = {alias: as_array(alias, value, None) for alias, value in trees.flatten(inputs).items()}
    else:
        arrays = declared.fit(inputs)
    return Predict(spec, signature, arrays, output_filter, declared)


def _has_task(signatures: Signatures, task: Task[Any]) -> bool:
    try:
        _find_signature(signatures, task)
    except RequestRefusedError:
        return False
    return True


def _find_signature(signatures: Signatures, task: Task[Any]) -> str:
    """Return the signature to run for a task, which the model must have."""
    actual, signature = find_task(signatures)
    if actual is not task and not task.fits(signatures.find(signature).outputs):
        raise RequestRefusedError(
            Code.FAILED_PRECONDITION,
            f"the task of {signatures.title} is {actual.title}: use the method {actual.method}() "
            f"instead of {task.method}()",
        )
    return signature
