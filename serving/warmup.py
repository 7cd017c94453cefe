"""Warm-up: runs the requests recorded in a version's folder before the version becomes available.

The first run of a signature prepares TensorFlow's graph, mostly on one CPU; so several requests run at the same time.
The file, `wire.version_folder.WARMUP`, is a TFRecord file of PredictionLog messages
(https://www.tensorflow.org/tfx/serving/saved_model_warmup).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference import examples
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire import messages, schema, version_folder
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

logger = logging.getLogger(__name__)

MAX_RECORDS = 1000

_ADVICE = ". Please verify your warmup data is in TFRecord format."

# More would wait for each other: TensorFlow prepares graphs partly under a lock.
_PARALLEL_REQUESTS = min(4, os.cpu_count() or 1)


def replay(servable: Servable, folder: Path, *, iterations: int = 1) -> None:
    """Run the warm-up requests in the folder of a version, if it has any. Ignores their model names and versions.

    Raises:
        StatusError: a request failed (its own error), the file is damaged, or it has more than 1000 records or one
            that cannot be replayed.
    """
    path = folder / version_folder.WARMUP
    if not path.is_file():
        return
    started = time.perf_counter()
    try:
        count = _replay_file(servable, path, iterations)
    except StatusError as error:
        if error.code is Code.DATA_LOSS:  # the file is damaged; a request that fails is not recorded in the metrics
            _record_latency(folder, str(error).removesuffix(_ADVICE), started)
        raise
    _record_latency(folder, "OK", started)
    metrics.WARMUP_RECORDS_READ.labels(str(folder), "OK").inc(count)
    logger.info("%s version %d: replayed %d warm-up records from %s", servable.name, servable.version, count, path)


def _record_latency(folder: Path, status: str, started: float) -> None:
    metrics.WARMUP_LATENCY.labels(str(folder), status).observe((time.perf_counter() - started) * 1e6)


def _replay_file(servable: Servable, path: Path, iterations: int) -> int:
    """Run every record of the file; return their number."""
    count, records = 0, _read(path)
    with ThreadPoolExecutor(_PARALLEL_REQUESTS) as pool:
        while group := list(islice(records, _PARALLEL_REQUESTS)):
            count += len(group)
            if count > MAX_RECORDS:
                raise invalid_argument(f"Number of warmup records exceeds the maximum ({MAX_RECORDS}) at {path}")
            list(pool.map(lambda record: _replay_record(servable, _parse(record, path), iterations), group))
    return count


def _replay_record(servable: Servable, log: Any, iterations: int) -> None:
    log_type = log.WhichOneof("log_type")
    if log_type is None:
        return
    if log_type not in _RUN:
        number = log.DESCRIPTOR.fields_by_name[log_type].number
        raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {number}")
    for _ in range(iterations):
        _RUN[log_type](servable, getattr(log, log_type).request)


def _predict(servable: Servable, message: Any) -> None:
    request = messages.read_predict_request(message)
    call = PredictCall(message.model_spec.signature_name, request.inputs, request.output_filter)
    predict(servable, call, RequestContext())


def _run_examples(run: Callable[..., object], servable: Servable, message: Any) -> None:
    request = messages.read_examples_request(message)
    call = examples.ExamplesCall(message.model_spec.signature_name, request.examples)
    run(servable, call, RequestContext())


def _multi_inference(servable: Servable, message: Any) -> None:
    request = messages.read_multi_inference_request(message)
    tasks = [examples.InferenceTask(spec.name, spec.signature_name, method) for spec, method in request.tasks]
    examples.multi_inference(servable, examples.MultiInferenceCall(tasks, request.examples), RequestContext())


_RUN: dict[str, Callable[[Servable, Any], None]] = {
    "predict_log": _predict,
    "classify_log": partial(_run_examples, examples.classify),
    "regress_log": partial(_run_examples, examples.regress),
    "multi_inference_log": _multi_inference,
}


def _read(path: Path) -> Iterator[bytes]:
    try:
        yield from tf.compat.v1.io.tf_record_iterator(str(path))
    except tf.errors.DataLossError as error:
        raise StatusError(Code.DATA_LOSS, f"{error.message}{_ADVICE}") from error
    except tf.errors.OpError as error:
        raise StatusError(Code(error.error_code), error.message) from error


def _parse(record: bytes, path: Path) -> Any:
    try:
        return schema.PredictionLog.FromString(record)
    except DecodeError as error:
        text = record.decode("latin-1")
        raise invalid_argument(f"Failed to parse warmup record: {text} from {path}") from error
