"""Predict over gRPC, called with TensorFlow Serving's official stubs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from grpc_calls import error_of, request
from server_process import ServerProcess
from tensorflow_serving.apis import predict_pb2


def test_outputs_are_in_typed_fields_and_the_response_names_model_version_and_signature(prediction: object) -> None:
    response = prediction.Predict(request(x=np.float32([1, 2])), timeout=30)
    assert [3.5, 4.0] == list(response.outputs["y"].float_val)
    assert response.outputs["y"].tensor_content == b""
    assert ("half_plus_two", 3, "serving_default") == (
        response.model_spec.name,
        response.model_spec.version.value,
        response.model_spec.signature_name,
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [({"version": 1}, 2.0), ({"version": 3}, 3.0), ({"label": "stable"}, 2.0), ({}, 3.0)],
    ids=["version 1", "version 3", "label", "highest"],
)
def test_versions_and_labels(prediction: object, choice: dict[str, object], expected: float) -> None:
    response = prediction.Predict(request(x=np.float32([0]), **choice), timeout=30)
    assert [expected] == list(response.outputs["y"].float_val)


def test_a_tensorflow_2_model(prediction: object) -> None:
    response = prediction.Predict(request(model="tf2", x=np.float32([4])), timeout=30)
    assert [4.0] == list(response.outputs["output_0"].float_val)


def test_shapes_are_not_checked_against_the_signature(prediction: object) -> None:
    response = prediction.Predict(request(x=np.float32([[2], [4]])), timeout=30)
    assert [2, 1] == [dim.size for dim in response.outputs["y"].tensor_shape.dim]


@pytest.mark.parametrize("dimensions", [65, 254])
def test_more_dimensions_than_numpy_supports(prediction: object, dimensions: int) -> None:
    response = prediction.Predict(ranked(dimensions), timeout=30).outputs["y"]
    assert ([1] * dimensions, [5.0]) == ([dim.size for dim in response.tensor_shape.dim], list(response.float_val))


def test_many_dimensions_with_many_values(prediction: object) -> None:
    values = np.arange(2**19, dtype=np.float32)
    message = ranked(65, len(values))
    message.inputs["x"].tensor_content = values.tobytes()
    response = prediction.Predict(message, timeout=30).outputs["y"]
    assert [len(values), *[1] * 64] == [dim.size for dim in response.tensor_shape.dim]
    np.testing.assert_array_equal(values / 2 + 3, response.float_val)


def test_an_output_filter_selects_outputs(prediction: object) -> None:
    message = request("two", a=np.float32([5]), b=np.float32([2]))
    message.output_filter.append("diff")
    assert ["diff"] == list(prediction.Predict(message, timeout=30).outputs)


def test_strings_keep_every_byte(prediction: object) -> None:
    response = prediction.Predict(request("text", s=[b"a\0\xff", b""]), timeout=30)
    assert [b"a\0\xff", b""] == list(response.outputs["t"].string_val)


def filtered(alias: str, *more: str) -> predict_pb2.PredictRequest:
    message = request(x=np.float32([1]))
    message.output_filter.extend([alias, *more])
    return message


def damaged() -> predict_pb2.PredictRequest:
    message = request(x=np.float32([1]))
    message.inputs["x"].ClearField("float_val")
    message.inputs["x"].tensor_content = b"abc"
    return message


def ranked(dimensions: int, first: int = 1) -> predict_pb2.PredictRequest:
    message = request(x=np.float32([4]))
    del message.inputs["x"].tensor_shape.dim[:]
    for size in (first, *[1] * (dimensions - 1)):
        message.inputs["x"].tensor_shape.dim.add(size=size)
    return message


INVALID = [
    pytest.param(predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec", id="no spec"),
    pytest.param(request(model=""), "INVALID_ARGUMENT", "ModelSpec has no name specified.", id="no name"),
    pytest.param(request(model="m"), "NOT_FOUND", "Servable not found for request: Latest(m)", id="model"),
    pytest.param(
        request(version=2), "NOT_FOUND", "Servable not found for request: Specific(half_plus_two, 2)", id="version"
    ),
    pytest.param(request(label="x"), "INVALID_ARGUMENT", "Unrecognized servable version label: x", id="label"),
    pytest.param(
        request(label="gone"), "NOT_FOUND", "Servable not found for request: Specific(half_plus_two, 9)", id="gone"
    ),
    pytest.param(request("s"), "FAILED_PRECONDITION", 'Serving signature key "s" not found.', id="signature"),
    pytest.param(
        request(z=1.0, w=1.0),
        "INVALID_ARGUMENT",
        "input size does not match signature: 2!=1 len({w,z}) != len({x}). Sent extra: {w,z}. "
        "Missing but required: {x}.",
        id="too many inputs",
    ),
    pytest.param(
        request(z=1.0),
        "INVALID_ARGUMENT",
        "Signature input alias: x(feed name: x:0) not found in request and no default value provided. Inputs expected "
        "to be in the request {z}, or default input alias set: ",
        id="other input",
    ),
    pytest.param(damaged(), "INVALID_ARGUMENT", "tensor parsing error: x", id="no tensor"),
    pytest.param(
        filtered("q"),
        "INVALID_ARGUMENT",
        "output tensor alias not found in signature: q Outputs expected to be in the set {y}.",
        id="unknown output",
    ),
    pytest.param(filtered("y", "y"), "INVALID_ARGUMENT", "duplicate output tensor alias: y", id="output twice"),
    pytest.param(
        request(x=np.int32([1])),
        "INVALID_ARGUMENT",
        "Expects arg[0] to be float but int32 is provided",
        id="dtype",
    ),
    pytest.param(
        request("__saved_model_init_op", model="tf2"),
        "OUT_OF_RANGE",
        "Node 'NoOp' (type: 'NoOp', num of outputs: 0) does not have output 0",
        id="no tensor to fetch",
    ),
    pytest.param(ranked(255), "INVALID_ARGUMENT", "tensor parsing error: x", id="255 dimensions"),
    pytest.param(ranked(65, 2**62), "INVALID_ARGUMENT", "tensor parsing error: x", id="more than can be counted"),
    pytest.param(ranked(65, 2**44), "INVALID_ARGUMENT", "tensor parsing error: x", id="more than there is room for"),
]


@pytest.mark.parametrize(("message", "code", "text"), INVALID)
def test_invalid_requests(prediction: object, message: object, code: str, text: str) -> None:
    assert (code, text) == error_of(prediction.Predict, message)


def peak_memory_kb(process_id: int) -> int:
    status = Path("/proc", str(process_id), "status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


@pytest.mark.parametrize("dtype", [tf.resource, tf.variant], ids=["resource", "variant"])
@pytest.mark.parametrize("sizes", [[], [0], [2, 3], [-1], [1] * 255, [2**60], [10**10], [1, 10**10]], ids=str)
def test_handles_of_any_shape_are_rejected_without_memory_for_each(
    server: ServerProcess, prediction: object, dtype: tf.DType, sizes: list[int]
) -> None:
    before = peak_memory_kb(server.process.pid)
    message = request(x=np.float32(0))
    message.inputs["x"].Clear()
    message.inputs["x"].dtype = dtype.as_datatype_enum
    for size in sizes:
        message.inputs["x"].tensor_shape.dim.add(size=size)
    code, text = error_of(prediction.Predict, message)
    is_invalid_shape = len(sizes) > 254 or any(size in (-1, 2**60) for size in sizes)
    expected = (
        "Invalid resource type hash code: 0" if dtype is tf.resource else "Expects arg[0] to be float but variant"
    )
    assert ("INVALID_ARGUMENT", True) == (
        code,
        text.startswith("tensor parsing error: x" if is_invalid_shape else expected),
    ), text
    assert peak_memory_kb(server.process.pid) < 2 * before  # 10^10 handles would take 80 GB


def test_a_deadline_stops_the_run(prediction: object) -> None:
    with pytest.raises(grpc.RpcError) as error:
        prediction.Predict(request("slow", n=np.int32(2**31 - 1)), timeout=0.5)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_messages_of_64_mb(prediction: object) -> None:
    x = np.arange(16 * 2**20, dtype=np.float32)
    message = request(x=np.float32([0]))
    message.inputs["x"].ClearField("float_val")
    message.inputs["x"].tensor_content = x.tobytes()
    message.inputs["x"].tensor_shape.dim[0].size = len(x)
    response = prediction.Predict(message, timeout=60)
    assert np.array_equal(x / 2 + 3, np.array(response.outputs["y"].float_val, np.float32))


def test_concurrent_calls_get_their_own_results(prediction: object) -> None:
    """64 threads make 512 calls of one model."""

    def call(number: int) -> list[float]:
        return list(prediction.Predict(request(x=np.float32([number])), timeout=60).outputs["y"].float_val)

    with ThreadPoolExecutor(64) as callers:
        assert [[number / 2 + 3] for number in range(512)] == list(callers.map(call, range(512)))


def test_a_call_without_a_deadline(prediction: object) -> None:
    assert [3.5] == list(prediction.Predict(request(x=np.float32([1]))).outputs["y"].float_val)
