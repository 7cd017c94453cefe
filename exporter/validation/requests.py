"""Requests about photos, and the process that has a SavedModel answer them. A question is a PredictionLog."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from savedmodel_bakery.exporter.errors import ParityError, VerificationError
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor


class SessionError(VerificationError):
    """A SavedModel can't be loaded or run.

    Args:
        reason: what TensorFlow says.
        answered: the questions that it had answered before, with their answers.
    """

    def __init__(self, reason: str, answered: list[Any]) -> None:
        super().__init__(f"the SavedModel fails in a Session, as tensorflow_model_server would run it: {reason}")
        self.answered = answered


@dataclass(frozen=True)
class PhotoAnswer:
    """What a SavedModel says of one photo.

    Attributes:
        photo: the file.
        error: why it can't be read; empty where it can, and the rest counts only then.
        labels: by `top_k`, best first.
        scores: float32 [k], of these.
        class_ids: int32 [k], of these.
        pixels: float32 [height, width, 3], 0..255, by `preprocess`.
    """

    photo: Path
    error: str
    labels: list[str]
    scores: np.ndarray
    class_ids: np.ndarray
    pixels: np.ndarray


def predict(signature: str, inputs: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> Any:
    """A question that Predict answers; no `outputs` means all of them."""
    log = schema.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.output_filter.extend(outputs)
    for alias, array in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(encode_tensor(array))
    return log


def images(*encoded: bytes) -> dict[str, np.ndarray]:
    """The input `image` of a baked servable: object [batch]."""
    return {"image": np.array(encoded, object)}


def about_photos(photos: Sequence[Path], signatures: Sequence[str]) -> list[Any]:
    """Questions to each of the signatures about each photo, photo by photo.

    Raises:
        ParityError: a file can't be read.
    """
    encoded = [images(read_photo(photo)) for photo in photos]
    return [predict(signature, image) for image in encoded for signature in signatures]


def read_photo(photo: Path) -> bytes:
    """The bytes of a file.

    Raises:
        ParityError: it can't be read.
    """
    try:
        return photo.read_bytes()
    except OSError as error:
        raise ParityError(f"the photo {photo} cannot be read: {error.strerror}") from error


def read_photo_answers(
    photos: Sequence[Path], by_top_k: Sequence[Any], by_preprocess: Sequence[Any]
) -> list[PhotoAnswer]:
    """Read what the signatures `top_k` and `preprocess` answered about photos."""
    found = []
    for photo, top_k, preprocess in zip(photos, by_top_k, by_preprocess, strict=True):
        best = outputs_of(top_k)
        found.append(
            PhotoAnswer(
                photo=photo,
                error=best["error"][0].decode(),
                labels=[label.decode() for label in best["labels"][0]],
                scores=best["scores"][0],
                class_ids=best["class_ids"][0],
                pixels=outputs_of(preprocess)["pixels"][0],
            )
        )
    return found


def outputs_of(log: Any) -> dict[str, np.ndarray]:
    """The answer to a Predict question, by alias."""
    response = log.predict_log.response
    return {alias: decode_array(response.outputs[alias]) for alias in response.outputs}


def ask(saved_model: Path, questions: Sequence[Any]) -> list[Any]:
    """Load `saved_model` in a fresh process, as tensorflow_model_server does, and have it answer.

    tensorflow_model_server restores a SavedModel into a Session. A SavedModel whose variables can't be restored that
    way still answers through tf.saved_model.load, so only a Session in a process that never held the network is proof.

    Returns:
        The questions with their answers, in the same order.

    Raises:
        SessionError: it can't be loaded or run.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "asked", Path(folder) / "answered"
        write_records(asked, questions)
        child = subprocess.run(
            [
                sys.executable,
                "-m",
                "savedmodel_bakery.exporter.validation.session",
                str(saved_model),
                str(asked),
                str(answered),
            ],
            capture_output=True,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
        )
        found = _read_records(answered) if answered.is_file() else []
        if child.returncode != 0:
            raise SessionError((child.stderr.strip().splitlines() or ["no reason given"])[-1], found)
        return found


def write_records(path: Path, logs: Sequence[Any]) -> None:
    """Write PredictionLogs as TFRecords, the form of warm-up files."""
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log.SerializeToString())


def _read_records(path: Path) -> list[Any]:
    import tensorflow as tf

    return [
        schema.PredictionLog.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
