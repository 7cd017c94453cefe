"""Warm-up requests run before a version becomes available, and a failing one fails the load."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import model_makers
import numpy as np
import pytest
import requests
import tensorflow as tf
from server_process import ServerProcess
from tensorflow_serving.apis import prediction_log_pb2

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.inference.predict import PredictCall, predict
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.serving.warmup import replay
from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor


def predict_log(signature: str = "", **inputs: object) -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.predict_log.request.model_spec.name = "whatever"
    log.predict_log.request.model_spec.version.value = 77
    log.predict_log.request.model_spec.signature_name = signature
    for alias, value in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return log.SerializeToString()


def examples_log(kind: str, signature: str) -> bytes:
    log = prediction_log_pb2.PredictionLog()
    request = getattr(log, kind).request
    request.model_spec.signature_name = signature
    example = request.input.example_list.examples.add()
    example.features.feature["x"].float_list.value.append(1.0)
    return log.SerializeToString()


def multi_inference_log() -> bytes:
    log = prediction_log_pb2.PredictionLog()
    request = log.multi_inference_log.request
    task = request.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.name, task.model_spec.signature_name = "whatever", "regress"
    request.input.example_list.examples.add().features.feature["x"].float_list.value.append(1.0)
    return log.SerializeToString()


WITH_WARMUP = LoadOptions(warm_up=replay)
X = predict_log(x=np.float32([1, 2]))


def runs_before(path: Path, options: LoadOptions) -> int:
    """Load the model of `model_makers.counting`; return how often it ran before that returned."""
    servable = load("counting", 1, path, options)
    x = Tensor(np.float32([1, 2]), dtypes.BY_NAME["float"])
    outputs = predict(servable, PredictCall("", {"x": x}), RequestContext())
    servable.close()
    return int(outputs["runs"].array) - 1


@pytest.mark.parametrize(
    ("records", "iterations", "expected"),
    [([X], 1, 1), ([X, X], 3, 6), ([X], 0, 0), ([b"", X], 1, 1), ([], 1, 0), ([X] * 1000, 1, 1000)],
    ids=["once", "each three times", "disabled", "an empty record", "an empty file", "the maximum"],
)
def test_each_record_is_run_as_often_as_configured(
    tmp_path: Path, records: list[bytes], iterations: int, expected: int
) -> None:
    path = model_makers.counting(tmp_path)
    model_makers.write_warmup(path, records)
    assert expected == runs_before(
        path, LoadOptions(warm_up=partial(replay, iterations=iterations) if iterations else None)
    )


def test_every_kind_of_request_is_run(tmp_path: Path) -> None:
    path = model_makers.half_plus(tmp_path, 1)
    logs = [examples_log("classify_log", "classify"), examples_log("regress_log", "regress"), multi_inference_log()]
    for log in logs:
        model_makers.write_warmup(path, [log])
        load("m", 1, path, WITH_WARMUP).close()
    wrong = [examples_log("classify_log", "regress"), examples_log("regress_log", "classify")]
    for log in wrong:
        model_makers.write_warmup(path, [log])
        with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
            load("m", 1, path, WITH_WARMUP)


def session_run_log() -> bytes:
    log = prediction_log_pb2.PredictionLog()
    log.session_run_log.request.model_spec.name = "m"
    return log.SerializeToString()


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([X, predict_log(nosuch=1.0)], "INVALID_ARGUMENT: Signature input alias: x(feed name: x:0) not found"),
        ([predict_log("nosuch", x=1.0)], 'FAILED_PRECONDITION: Serving signature key "nosuch" not found.'),
        ([session_run_log()], "UNIMPLEMENTED: Unsupported log_type for warmup: 5"),
        ([b"\xff\xff\xff"], "INVALID_ARGUMENT: Failed to parse warmup record: ÿÿÿ from {path}"),
        ([X] * 1001, "INVALID_ARGUMENT: Number of warmup records exceeds the maximum (1000) at {path}"),
    ],
    ids=["missing input", "unknown signature", "unsupported type", "garbage", "too many"],
)
def test_a_record_that_fails_fails_the_load(tmp_path: Path, records: list[bytes], reason: str) -> None:
    version = model_makers.half_plus(tmp_path, 1)
    path = model_makers.write_warmup(version, records)
    with pytest.raises(StatusError) as error:
        load("m", 1, version, WITH_WARMUP)
    assert str(error.value).startswith(reason.format(path=path))


def damage_checksum(whole: bytes) -> bytes:
    return whole[:14] + bytes([whole[14] ^ 0xFF]) + whole[15:]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_checksum, "corrupted record at 12"),
        (lambda _: b"no records, but text", "corrupted record at 0 (Is this even a TFRecord file?)"),
        (lambda whole: whole[:-3], "truncated record at 0' failed with Read less bytes than requested"),
    ],
    ids=["a changed bit", "text", "truncated"],
)
def test_a_damaged_file_fails_the_load(tmp_path: Path, damage: object, reason: str) -> None:
    version = model_makers.half_plus(tmp_path, 1)
    path = model_makers.write_warmup(version, [X])
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(StatusError) as error:
        load("m", 1, version, WITH_WARMUP)
    assert f"DATA_LOSS: {reason}. Please verify your warmup data is in TFRecord format." == str(error.value)


def test_flags_configure_the_warm_up(tmp_path: Path) -> None:
    path = model_makers.counting(tmp_path / "counting")
    model_makers.write_warmup(path, [X])
    flags = ("--model_name=m", f"--model_base_path={path.parent}", "--num_request_iterations_for_warmup=4")
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        response = requests.post(f"{server.url}/v1/models/m:predict", json={"inputs": [0.0]}, timeout=30)
        assert {"outputs": 5} == response.json()


def test_a_failed_warm_up_ends_the_start_unless_it_is_disabled(tmp_path: Path) -> None:
    path = model_makers.half_plus(tmp_path / "m", 1)
    model_makers.write_warmup(path, [predict_log("nosuch", x=1.0)])
    flags = ("--model_name=m", f"--model_base_path={path.parent}", "--max_num_load_retries=0")
    failing = ServerProcess(*flags, log=tmp_path / "failing", wait=False)
    assert 255 == failing.process.wait(60)
    assert (
        "Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available: {{{name: m version: 1} due to "
        'error: FAILED_PRECONDITION: Serving signature key "nosuch" not found.}, }\n'
    ) in (tmp_path / "failing").read_text()
    with ServerProcess(*flags, "--enable_model_warmup=false", log=tmp_path / "log") as server:
        response = requests.post(f"{server.url}/v1/models/m:predict", json={"instances": [0.0]}, timeout=30)
        assert {"predictions": [2.0]} == response.json()
