"""Builds requests to a baked SavedModel, and reads their responses. Both are in PredictionLog messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.servable_module import ENCODED_FEATURE
from savedmodel_bakery.exporter.tasks.task import Answers
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor

PredictionLog: TypeAlias = Any
"""A request, and its response once it has one: the protobuf message tensorflow.serving.PredictionLog."""


@dataclass(frozen=True)
class PhotoResponse:
    """Responses of a SavedModel to one photo.

    Attributes:
        photo: the file.
        error: why the photo can't be read; if it is not empty, the other values mean nothing.
        answers: of the signatures of the task.
        pixels: float32 [height, width, 3], 0..255, from `preprocess`.
    """

    photo: Path
    error: str
    answers: Answers
    pixels: np.ndarray


def predict_request(signature: str, inputs: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> PredictionLog:
    """Build a Predict request; an empty `outputs` requests all outputs."""
    log = schema.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.output_filter.extend(outputs)
    for alias, array in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(encode_tensor(array))
    return log


def example_request(signature: str, photo: bytes) -> PredictionLog:
    """Build a request with one image to the signature `classify` or `regress`, which the method of that name calls."""
    log = schema.PredictionLog()
    request = getattr(log, f"{signature}_log").request
    request.model_spec.signature_name = signature
    request.input.example_list.examples.append(encode_example({ENCODED_FEATURE: photo}))
    return log


def image_input(*images: bytes) -> dict[str, np.ndarray]:
    """Return the input `image` of a servable: object [batch]."""
    return {"image": np.array(images, object)}


def photo_requests(photos: Sequence[Path], signatures: Sequence[str]) -> list[PredictionLog]:
    """Build a request per photo and signature, photo by photo.

    Raises:
        ParityError: a file can't be read.
    """
    inputs = [image_input(read_photo(photo)) for photo in photos]
    return [predict_request(signature, image) for image in inputs for signature in signatures]


def read_photo(photo: Path) -> bytes:
    """Return the bytes of a photo.

    Raises:
        ParityError: the file can't be read.
    """
    try:
        return photo.read_bytes()
    except OSError as error:
        raise ParityError(f"cannot read the photo {photo}: {error.strerror}") from error


def decode_photo_responses(
    photos: Sequence[Path], signatures: Sequence[str], logs: Sequence[PredictionLog]
) -> list[PhotoResponse]:
    """Decode the responses to `photo_requests`; the first of the signatures has an output `error`."""
    responses = []
    for photo, start in zip(photos, range(0, len(logs), len(signatures)), strict=True):
        rows = map(decode_row, logs[start : start + len(signatures)])
        answers = dict(zip(signatures, rows, strict=True))
        pixels = answers.pop("preprocess")["pixels"]
        responses.append(PhotoResponse(photo, answers[signatures[0]]["error"].decode(), answers, pixels))
    return responses


def decode_row(log: PredictionLog) -> dict[str, Any]:
    """Decode the outputs of a Predict response to one photo, without the batch axis."""
    return {alias: array[0] for alias, array in decode_outputs(log).items()}


def decode_outputs(log: PredictionLog) -> dict[str, np.ndarray]:
    """Decode the outputs of a Predict response by alias."""
    outputs = log.predict_log.response.outputs
    return {alias: decode_array(outputs[alias]) for alias in outputs}
