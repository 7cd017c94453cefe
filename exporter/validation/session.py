"""Runs requests on SavedModels in a fresh process, as tensorflow_model_server runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType

from savedmodel_bakery.errors import VerificationError
from savedmodel_bakery.exporter import publish
from savedmodel_bakery.exporter.validation.requests import PredictionLog
from savedmodel_bakery.interrupts import cleaning_up
from savedmodel_bakery.wire import schema

_PROCESS = "savedmodel_bakery.exporter.validation.session_process"


class SessionProcess:
    """A fresh process that loads SavedModels as tensorflow_model_server does, until the end of the `with` block.

    tensorflow_model_server restores a SavedModel into a Session. A SavedModel whose variables can't be restored that
    way still works with tf.saved_model.load, so only a Session in a process without the network proves that they can.
    The process imports TensorFlow while the caller builds the SavedModel.

    Args:
        on_cpu: whether to hide GPUs from the process.

    Raises:
        PublishError: the temporary folder can't be written.
    """

    def __init__(self, *, on_cpu: bool = False) -> None:
        self._on_cpu = on_cpu

    def __enter__(self) -> SessionProcess:
        with ExitStack() as cleanup:
            with publish.writing(Path(tempfile.gettempdir())):
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
        """Start running PredictionLog requests on a SavedModel, which stays loaded for the next call.

        Args:
            saved_model: its folder.
            requests: PredictionLogs without responses.

        Returns:
            A function that waits for the responses and returns the requests with them, in the same order. It must be
            called before the next `start`. It raises a VerificationError if the SavedModel can't be loaded or run.

        Raises:
            PublishError: the temporary folder can't be written.
        """
        requests_file, responses_file = self._folder / "requests", self._folder / "responses"
        with publish.writing(self._folder):
            write_records(requests_file, requests)
        command = json.dumps([str(saved_model.absolute()), str(requests_file), str(responses_file)])
        with suppress(BrokenPipeError):  # if the process has ended, there is no answer either
            print(command, file=self._process.stdin, flush=True)
        return partial(self._wait_for, responses_file)

    def _wait_for(self, responses_file: Path) -> list[PredictionLog]:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        reason = json.loads(answer) if answer else self._last_words()
        if reason:
            raise VerificationError(
                f"the SavedModel fails in a Session, as tensorflow_model_server would run it: {reason}"
            )
        return _read_records(responses_file)

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
