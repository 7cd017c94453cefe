"""Builds requests to SavedModels, runs them in a fresh process as tensorflow_model_server does, and reads responses.

Requests and responses are in PredictionLog messages.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np

from savedmodel_bakery.answers.other_inputs import IMAGE, SECOND_IMAGE
from savedmodel_bakery.errors import ParityError, VerificationError
from savedmodel_bakery.exporter.signatures import ENCODED_FEATURE, SECOND_ENCODED_FEATURE
from savedmodel_bakery.exporter.tasks.task import Answers
from savedmodel_bakery.exporter.validation.other_values import NOTHING, OtherValues
from savedmodel_bakery.interrupts import cleaning_up
from savedmodel_bakery.storage.folders import writing
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor

PREPROCESS, SECOND_PREPROCESS = "preprocess", "preprocess_2"

_PROCESS = "savedmodel_bakery.exporter.validation.session_process"

PredictionLog: TypeAlias = Any
"""A request, and its response once it has one: the protobuf message tensorflow.serving.PredictionLog."""


@dataclass(frozen=True)
class PhotoResponse:
    """Responses of a SavedModel to one photo."""

    photo: Path
    error: str  # why the photo can't be read; if it is not empty, the other values mean nothing
    answers: Answers
    pixels: np.ndarray  # float32 [height, width, 3], 0..255, from `preprocess`
    others: OtherValues = NOTHING  # that were sent with it
    second_pixels: np.ndarray | None = None  # those of its second photo, if there is one


class SessionProcess:
    """A fresh process that loads SavedModels as tensorflow_model_server does, until the end of the `with` block.

    tensorflow_model_server restores a SavedModel into a Session. A SavedModel whose variables can't be restored that
    way still works with tf.saved_model.load, so only a Session in a process without the network proves that they can.
    The process imports TensorFlow while the caller does that too (this module does not) and builds the SavedModel. With
    `on_cpu`, it doesn't see GPUs.
    """

    def __init__(self, *, on_cpu: bool = False) -> None:
        self._on_cpu = on_cpu
        self._is_running = False

    def __enter__(self) -> SessionProcess:
        with ExitStack() as cleanup:
            with writing(Path(tempfile.gettempdir())):
                self._folder = Path(tempfile.mkdtemp())
                cleanup.enter_context(cleaning_up(partial(shutil.rmtree, self._folder, ignore_errors=True)))
                log = cleanup.enter_context((self._folder / "log").open("wb"))
            self._process = subprocess.Popen(
                [sys.executable, "-m", _PROCESS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ
                | {"TF_CPP_MIN_LOG_LEVEL": "3"}
                | ({"CUDA_VISIBLE_DEVICES": "-1"} if self._on_cpu else {}),
            )
            cleanup.callback(self._process.communicate)  # closes the pipes; after the kill
            cleanup.enter_context(cleaning_up(self._process.kill))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def run(self, saved_model: Path, requests: Sequence[PredictionLog]) -> list[PredictionLog]:
        """Run requests, and return them with their responses; see `start`."""
        return self.start(saved_model, requests)()

    def start(self, saved_model: Path, requests: Sequence[PredictionLog]) -> Callable[[], list[PredictionLog]]:
        """Start running requests on the SavedModel in a folder, which stays loaded for the next call.

        Returns a function that waits for the responses and returns the requests with them, in the same order. It must
        be called before the next `start`, which drops responses that were not waited for. It raises a VerificationError
        if the SavedModel can't be loaded or run.
        """
        if self._is_running:  # such as after an error between a start and the end of its wait
            self._read_answer()
        requests_file, responses_file = self._folder / "requests", self._folder / "responses"
        with writing(self._folder):
            write_records(requests_file, requests)
        command = json.dumps([str(saved_model.absolute()), str(requests_file), str(responses_file)])
        with suppress(BrokenPipeError):  # if the process has ended, there is no answer either
            print(command, file=self._process.stdin, flush=True)
        self._is_running = True
        return partial(self._wait_for, responses_file)

    def _wait_for(self, responses_file: Path) -> list[PredictionLog]:
        answer = self._read_answer()
        reason = json.loads(answer) if answer else self._last_words()
        if reason:
            raise VerificationError(
                f"the SavedModel fails in a Session, as tensorflow_model_server would run it: {reason}"
            )
        return _read_records(responses_file)

    def _read_answer(self) -> str:
        assert self._process.stdout is not None
        self._is_running = False
        return self._process.stdout.readline()

    def _last_words(self) -> str:
        """Return why the process ended by itself."""
        self._process.wait()
        lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        return (lines or ["no reason given"])[-1]


def write_records(path: Path, logs: Sequence[PredictionLog]) -> None:
    """Write PredictionLogs as TFRecords, the format of warm-up files.

    Raises:
        OSError: the file can't be written, for example on a full disk.
    """
    import tensorflow as tf

    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for log in logs:
                writer.write(log.SerializeToString())
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _read_records(path: Path) -> list[PredictionLog]:
    import tensorflow as tf

    return [
        schema.PredictionLog.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]


def predict_request(signature: str, inputs: dict[str, np.ndarray], outputs: Sequence[str] = ()) -> PredictionLog:
    """Build a Predict request; an empty `outputs` requests all outputs."""
    log = schema.PredictionLog()
    log.predict_log.request.model_spec.signature_name = signature
    log.predict_log.request.output_filter.extend(outputs)
    for alias, array in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(encode_tensor(array))
    return log


def example_request(signature: str, photo: bytes, others: OtherValues) -> PredictionLog:
    """Build a request with one image to the signature `classify` or `regress`, which the method of that name calls."""
    log = schema.PredictionLog()
    request = getattr(log, f"{signature}_log").request
    request.model_spec.signature_name = signature
    features: dict[str, Any] = {ENCODED_FEATURE: photo}
    if others.second is not None:
        features[SECOND_ENCODED_FEATURE] = read_photo(others.second)
    for name, array in others.arrays.items():
        is_whole = array.dtype.kind in "biu"
        values = array if array.dtype == object else array.astype(int if is_whole else float)
        features[name] = values.reshape(-1).tolist()
    request.input.example_list.examples.append(encode_example(features))
    return log


def image_input(*images: bytes, others: OtherValues = NOTHING) -> dict[str, np.ndarray]:
    """Return the inputs of a servable for images, object [batch], each with the same other values."""
    inputs = {"image": np.array(images, object), **repeated(others, len(images))}
    if others.second is not None:
        inputs[SECOND_IMAGE] = np.array([read_photo(others.second)] * len(images), object)
    return inputs


def repeated(others: OtherValues, count: int) -> dict[str, np.ndarray]:
    """Return arrays with `count` rows, all alike."""
    return {name: np.stack([array] * count) for name, array in others.arrays.items()}


def photo_requests(
    photos: Sequence[Path],
    signatures: Sequence[str],
    others: Mapping[Path, OtherValues],
    pixels: Sequence[str] = (),
) -> list[PredictionLog]:
    """Build a request per photo and signature, photo by photo.

    Those to the signatures `pixels` follow: to the first with the photo only, and to the second with its second photo,
    if there is one.
    """
    requests: list[PredictionLog] = []
    for photo in photos:
        inputs = image_input(read_photo(photo), others=others.get(photo, NOTHING))
        requests += (predict_request(signature, inputs) for signature in signatures)
        images = [inputs[alias] for alias in (IMAGE, SECOND_IMAGE) if alias in inputs]
        requests += (
            predict_request(signature, {IMAGE: image}) for signature, image in zip(pixels, images, strict=False)
        )
    return requests


def read_photo(photo: Path) -> bytes:
    """Return the bytes of a photo."""
    try:
        return photo.read_bytes()
    except OSError as error:
        raise ParityError(f"cannot read the photo {photo}: {error.strerror}") from error


def decode_photo_responses(
    photos: Sequence[Path],
    signatures: Sequence[str],
    others: Mapping[Path, OtherValues],
    logs: Sequence[PredictionLog],
) -> list[PhotoResponse]:
    """Decode the responses to `photo_requests` with signatures for pixels.

    The first of the signatures has an output `error`.
    """
    responses = []
    rows = map(decode_row, logs)
    for photo in photos:
        answers = {signature: next(rows) for signature in signatures}
        pixels = next(rows)["pixels"]
        own = others.get(photo, NOTHING)
        second = None if own.second is None else next(rows)["pixels"]
        error = answers[signatures[0]]["error"].decode()
        responses.append(PhotoResponse(photo, error, answers, pixels, own, second))
    return responses


def decode_row(log: PredictionLog) -> dict[str, Any]:
    """Decode the outputs of a Predict response to one photo, without the batch axis."""
    return {alias: array[0] for alias, array in decode_outputs(log).items()}


def decode_outputs(log: PredictionLog) -> dict[str, np.ndarray]:
    """Decode the outputs of a Predict response by alias."""
    outputs = log.predict_log.response.outputs
    return {alias: decode_array(outputs[alias]) for alias in outputs}
