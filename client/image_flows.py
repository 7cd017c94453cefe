"""The calls behind the methods of a client that take images; see `flows`. Reads files; does no network I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from savedmodel_bakery.answers.images import encode_images, encode_png, read_image
from savedmodel_bakery.answers.signatures import Signatures
from savedmodel_bakery.answers.task import ResultT, Task
from savedmodel_bakery.answers.tasks import find_pixels_size, find_task
from savedmodel_bakery.answers.tasks.classify import CLASSIFY, Classification, keep_top
from savedmodel_bakery.client.flows import Flow, Flows
from savedmodel_bakery.errors import RequestRefusedError
from savedmodel_bakery.wire.status import Code


def classify(flows: Flows, images: Any, *, top_k: int | None) -> Flow[Any]:
    """See `Client.classify`."""
    if top_k is not None and top_k < 1:
        raise ValueError(f"invalid top_k {top_k}: must be at least 1")
    results: Classification | list[Classification] = yield from run_task(flows, CLASSIFY, images)
    if isinstance(results, Classification):
        return keep_top(results, top_k)
    return [keep_top(result, top_k) for result in results]


def run_task(flows: Flows, task: Task[ResultT], images: Any) -> Flow[Any]:
    """Return the result of an image, or a list of the results of a list or tuple of images.

    Raises:
        RequestRefusedError: FAILED_PRECONDITION if the model has another task.
    """
    if not isinstance(images, list | tuple):
        [result] = yield from _run_task(flows, task, [images])
        return result
    return (yield from _run_task(flows, task, images))


def _run_task(flows: Flows, task: Task[ResultT], images: Sequence[Any]) -> Flow[list[ResultT]]:
    contents = [read_image(image) for image in images]
    if not contents:
        return []  # a server with batching may keep an empty request waiting
    signatures = yield from flows.signatures(is_current=lambda signatures: _has_task(signatures, task))
    signature = _find_signature(signatures, task) if signatures else task.signature
    size = find_pixels_size(signatures, task) if signatures else None
    pixels, files = {}, {}
    for place, content in enumerate(contents):
        if isinstance(content, bytes):
            files[place] = content
        elif content.shape == size:
            pixels[place] = content
        else:
            files[place] = encode_png(content)
    results: dict[int, ResultT] = {}
    if files:
        inputs: dict[str, np.ndarray] = encode_images(list(files.values()))
        prediction = yield from flows.predict(inputs, signature=signature, output_filter=())
        results |= zip(files, task.read(prediction, batch=len(files)), strict=True)
    if pixels:
        inputs = {"pixels": np.stack(list(pixels.values()))}
        prediction = yield from flows.predict(inputs, signature="pixels", output_filter=())
        results |= zip(pixels, task.read(prediction, batch=len(pixels)), strict=True)
    return [results[place] for place in range(len(images))]


def _has_task(signatures: Signatures, task: Task[Any]) -> bool:
    try:
        _find_signature(signatures, task)
    except RequestRefusedError:
        return False
    return True


def _find_signature(signatures: Signatures, task: Task[Any]) -> str:
    """Return the signature to run for a task, which the model must have."""
    actual, signature = find_task(signatures)
    if actual is not task:
        raise RequestRefusedError(
            Code.FAILED_PRECONDITION,
            f"the task of {signatures.title} is {actual.title}: use the method {actual.method}() "
            f"instead of {task.method}()",
        )
    return signature
