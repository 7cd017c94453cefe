"""Builds requests to a baked SavedModel, and reads their responses. Both are in PredictionLog messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from savedmodel_bakery.exporter.errors import ParityError
from savedmodel_bakery.exporter.servable_module import ENCODED_FEATURE
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
        labels: from `top_k`, best first.
        scores: float32 [k], of these labels.
        class_ids: int32 [k], of these labels.
        pixels: float32 [height, width, 3], 0..255, from `preprocess`.
    """

    photo: Path
    error: str
    labels: list[str]
    scores: np.ndarray
    class_ids: np.ndarray
    pixels: np.ndarray


def predict_request(signature: str, inputs: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> PredictionLog:
    """Build a Predict request; an empty `outputs` requests all outputs."""
    log = schema.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.output_filter.extend(outputs)
    for alias, array in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(encode_tensor(array))
    return log


def classify_request(photo: bytes) -> PredictionLog:
    """Build a Classify request with one image."""
    log = schema.PredictionLog()
    request = log.classify_log.request
    request.model_spec.signature_name = "classify"
    request.input.example_list.examples.append(encode_example({ENCODED_FEATURE: photo}))
    return log


def image_input(*images: bytes) -> dict[str, np.ndarray]:
    """Return the input `image` of a baked classifier: object [batch]."""
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
    photos: Sequence[Path], top_k: Sequence[PredictionLog], preprocess: Sequence[PredictionLog]
) -> list[PhotoResponse]:
    """Decode the responses of the signatures `top_k` and `preprocess` to each photo."""
    responses = []
    for photo, top_k_log, preprocess_log in zip(photos, top_k, preprocess, strict=True):
        best = decode_outputs(top_k_log)
        responses.append(
            PhotoResponse(
                photo=photo,
                error=best["error"][0].decode(),
                labels=[label.decode() for label in best["labels"][0]],
                scores=best["scores"][0],
                class_ids=best["class_ids"][0],
                pixels=decode_outputs(preprocess_log)["pixels"][0],
            )
        )
    return responses


def decode_outputs(log: PredictionLog) -> dict[str, np.ndarray]:
    """Decode the outputs of a Predict response by alias."""
    outputs = log.predict_log.response.outputs
    return {alias: decode_array(outputs[alias]) for alias in outputs}
