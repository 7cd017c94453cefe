"""Runs a model on photos and makes their rows; a bad photo affects its own row only. Does not import a transport."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from savedmodel_bakery.answers.photos.photo import Photo, UnreadablePhotoError
from savedmodel_bakery.answers.predictions import Prediction
from savedmodel_bakery.answers.rows import Row, make_row
from savedmodel_bakery.answers.task import ImageResult, Task
from savedmodel_bakery.error_text import image_error, one_line
from savedmodel_bakery.errors import ClientError, RequestRefusedError
from savedmodel_bakery.wire.status import Code

# These may be caused by an image or by the size of a request, unless the server asks to try again later. Any other code
# would be the same for every image.
_IMAGE_CODES = (
    Code.INVALID_ARGUMENT,
    Code.RESOURCE_EXHAUSTED,
    Code.INTERNAL,
    Code.UNKNOWN,
    Code.OUT_OF_RANGE,
    Code.ABORTED,
    Code.DATA_LOSS,
)

Predict = Callable[[list[bytes]], Prediction]
_Versioned = tuple[ImageResult, int | None]


def make_photo_rows(
    photos: Sequence[Photo], predict: Predict, *, task: Task[Any], model: str, signature: str
) -> list[Row]:
    """Read photos, send them in one request, and return their rows.

    There must be no more of them than fit into one request.

    If the request is refused, each photo is sent on its own; one that is refused again gets a row with the reason.
    ClientErrors that do not depend on the photos are raised. `predict` runs `signature` on images.
    """
    contents = [_read(photo, task) for photo in photos]
    results = iter(_run([content for content in contents if isinstance(content, bytes)], predict, task))
    rows = []
    for photo, content in zip(photos, contents, strict=True):
        result, version = next(results) if isinstance(content, bytes) else (content, None)
        rows.append(make_row(task, photo.key, result, model=model, version=version, signature=signature))
    return rows


def _read(photo: Photo, task: Task[Any]) -> bytes | ImageResult:
    try:
        return photo.read()
    except UnreadablePhotoError as exc:
        return _failed(task, str(exc))


def _run(images: list[bytes], predict: Predict, task: Task[Any]) -> list[_Versioned]:
    if not images:
        return []
    try:
        prediction = predict(images)
    except ClientError as exc:
        if not (isinstance(exc, RequestRefusedError) and exc.code in _IMAGE_CODES and exc.retry_after_s is None):
            raise
        if len(images) == 1:
            return [(_failed(task, image_error(str(exc))), None)]
        return [versioned for image in images for versioned in _run([image], predict, task)]
    return [(result, prediction.version) for result in task.read(prediction, batch=len(images))]


def _failed(task: Task[Any], reason: str) -> ImageResult:
    result: ImageResult = task.failed(one_line(reason))
    return result
