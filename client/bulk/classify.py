"""From photos to rows, whoever predicts; a bad photo costs its own row and no other's. Must not know a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from savedmodel_bakery.client.bulk.photos import Photo, UnreadablePhoto
from savedmodel_bakery.client.bulk.rows import Row
from savedmodel_bakery.client.commands.report import image_row, one_line, plain_reason
from savedmodel_bakery.client.errors import ClientError, RequestRefusedError
from savedmodel_bakery.client.images import read_classifications
from savedmodel_bakery.client.results import Classification, Prediction
from savedmodel_bakery.wire.status import Code

# These are about an image, or the size of a request; all others would be said of any image.
_ABOUT_IMAGES = (
    Code.INVALID_ARGUMENT,
    Code.RESOURCE_EXHAUSTED,
    Code.INTERNAL,
    Code.UNKNOWN,
    Code.OUT_OF_RANGE,
    Code.ABORTED,
    Code.DATA_LOSS,
)

Predict = Callable[[list[bytes]], Prediction]
_Answer = tuple[Classification, int | None]


def classify_photos(photos: Sequence[Photo], predict: Predict, *, model: str, signature: str) -> list[Row]:
    """Read photos, have them classified together, and make their rows.

    Where they are refused together, they are put one by one; one that is refused then is a row that says why.

    Args:
        photos: at most as many as may be put together.
        predict: runs `signature`, one with the outputs of `top_k`, on images.
        model: its model's name.
        signature: its name.

    Raises:
        ClientError: what `predict` raises that no other photo would change.
    """
    found = [_read(photo) for photo in photos]
    answers = iter(_answer([content for content in found if isinstance(content, bytes)], predict))
    return [
        image_row(photo.key, answer, model=model, version=version, signature=signature)
        for photo, content in zip(photos, found, strict=True)
        for answer, version in [next(answers) if isinstance(content, bytes) else (content, None)]
    ]


def _read(photo: Photo) -> bytes | Classification:
    try:
        return photo.read()
    except UnreadablePhoto as exc:
        return _failed(str(exc))


def _answer(images: list[bytes], predict: Predict) -> list[_Answer]:
    if not images:
        return []
    try:
        prediction = predict(images)
    except ClientError as exc:
        if not _is_about_images(exc):
            raise
        if len(images) == 1:
            return [(_failed(plain_reason(str(exc))), None)]
        return [answer for image in images for answer in _answer([image], predict)]
    found = read_classifications(prediction, batch=len(images), top_k=None)
    return [(answer, prediction.version) for answer in found]


def _failed(reason: str) -> Classification:
    return Classification(ok=False, error=one_line(reason), label=None)


def _is_about_images(exc: ClientError) -> bool:
    return isinstance(exc, RequestRefusedError) and exc.code in _ABOUT_IMAGES
