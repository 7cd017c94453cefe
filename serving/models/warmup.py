"""Warm-up: requests that travel in a version's folder are run before it answers anyone, so that no caller waits for it.

Several run at the same time, as a signature's first run is mostly TensorFlow making its graph ready, on one CPU.

The file, `wire.version_folder.WARMUP`, is a TFRecord file of PredictionLog messages
(https://www.tensorflow.org/tfx/serving/saved_model_warmup).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving import metrics
from savedmodel_bakery.serving.inference import messages
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import schema, version_folder
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

MAX_RECORDS = 1000

# More would only wait for each other: part of that work is done under a lock.
_AT_THE_SAME_TIME = min(4, os.cpu_count() or 1)

_CALLS: dict[str, Callable[[Servable, Any], Any]] = {
    "predict_log": messages.predict,
    "classify_log": messages.classify,
    "regress_log": messages.regress,
    "multi_inference_log": messages.multi_inference,
}


class _DamageError(StatusError):
    """The file is damaged.

    Attributes:
        reason: TensorFlow's own words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(Code.DATA_LOSS, f"{reason}. Please verify your warmup data is in TFRecord format.")
        self.reason = reason


def replay(servable: Servable, folder: Path, *, iterations: int) -> None:
    """Run the warm-up requests in a version's folder, if it has any; their model names and versions are not looked at.

    Args:
        servable: the version.
        folder: where it lies.
        iterations: times each request is run.

    Raises:
        StatusError: a request failed, with its own error; the file is damaged, holds what can't be replayed, or more
            than 1000 records.
    """
    path = folder / version_folder.WARMUP
    if not path.is_file():
        return
    started = time.perf_counter()
    try:
        count = _replay_file(servable, path, iterations)
    except _DamageError as damage:  # a request that failed is not noted
        _note(folder, f"{damage.code.name}: {damage.reason}", started)
        raise
    _note(folder, "OK", started)
    metrics.WARMUP_RECORDS_READ.labels(str(folder), "OK").inc(count)
    logger.info("%s version %d: %d warm-up records replayed from %s", servable.name, servable.version, count, path)


def _note(folder: Path, status: str, started: float) -> None:
    metrics.WARMUP_LATENCY.labels(str(folder), status).observe((time.perf_counter() - started) * 1e6)


def _replay_file(servable: Servable, path: Path, iterations: int) -> int:
    """Number of records in the file, each of which was run."""
    count, records = 0, _read(path)
    with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
        while some := list(islice(records, _AT_THE_SAME_TIME)):
            count += len(some)
            if count > MAX_RECORDS:
                raise invalid_argument(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
            list(pool.map(lambda record: _replay_record(servable, _parse(record, path), iterations), some))
    return count


def _replay_record(servable: Servable, log: Any, iterations: int) -> None:
    kind = log.WhichOneof("log_type")
    if kind is None:
        return
    if kind not in _CALLS:
        number = log.DESCRIPTOR.fields_by_name[kind].number
        raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number}")
    for _ in range(iterations):
        _CALLS[kind](servable, getattr(log, kind).request)


def _read(path: Path) -> Iterator[bytes]:
    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(path))
    except tf.errors.DataLossError as error:
        raise _DamageError(error.message) from error
    except tf.errors.OpError as error:
        raise StatusError(Code(error.error_code), error.message) from error


def _parse(record: bytes, path: Path) -> Any:
    try:
        return schema.PredictionLog.FromString(record)
    except DecodeError as error:
        shown = record.decode("latin-1")
        raise invalid_argument(f"Failed to parse warmup record: {shown} from {path}") from error
