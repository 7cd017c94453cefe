"""Runs requests on a SavedModel in a fresh process, as tensorflow_model_server runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.errors import VerificationError
from savedmodel_bakery.exporter.validation.requests import PredictionLog
from savedmodel_bakery.interrupts import cleaning_up
from savedmodel_bakery.wire import schema

_PROCESS = "savedmodel_bakery.exporter.validation.session_process"


class SessionError(VerificationError):
    """A SavedModel can't be loaded or run.

    Args:
        reason: TensorFlow's message.
        completed: the requests that succeeded before, with their responses.
    """

    def __init__(self, reason: str, completed: list[PredictionLog]) -> None:
        super().__init__(f"the SavedModel fails in a Session, as tensorflow_model_server would run it: {reason}")
        self.completed = completed


def run_requests(saved_model: Path, requests: Sequence[PredictionLog], *, on_cpu: bool = False) -> list[PredictionLog]:
    """Load `saved_model` in a fresh process, as tensorflow_model_server does, and run PredictionLog requests on it.

    tensorflow_model_server restores a SavedModel into a Session. A SavedModel whose variables can't be restored that
    way still works with tf.saved_model.load, so only a Session in a process without the network proves that they can.

    Args:
        saved_model: its folder.
        requests: PredictionLogs without responses.
        on_cpu: whether to hide GPUs from the process.

    Returns:
        The requests with their responses, in the same order.

    Raises:
        SessionError: the SavedModel can't be loaded or run.
        PublishError: the temporary folder can't be written.
    """
    folder = tempfile.mkdtemp()
    with cleaning_up(partial(shutil.rmtree, folder, ignore_errors=True)):
        requests_file, responses_file = Path(folder) / "requests", Path(folder) / "responses"
        with publish.writing(Path(folder)):
            write_records(requests_file, requests)
        process = subprocess.Popen(
            [sys.executable, "-m", _PROCESS, str(saved_model), str(requests_file), str(responses_file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **({"CUDA_VISIBLE_DEVICES": "-1"} if on_cpu else {})},
        )
        with cleaning_up(process.kill):
            _, reasons = process.communicate()
        completed = _read_records(responses_file) if responses_file.is_file() else []
        if process.returncode != 0:
            raise SessionError((reasons.strip().splitlines() or ["no reason given"])[-1], completed)
        return completed


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

    records = tf.data.TFRecordDataset(str(path)).ignore_errors()  # a process that is killed may leave half a record
    return [schema.PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
