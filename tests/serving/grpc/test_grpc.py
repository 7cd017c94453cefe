"""gRPC as the official stubs of TensorFlow Serving see it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as opened:
        yield opened


@pytest.fixture(scope="module")
def prediction(channel: grpc.Channel) -> prediction_service_pb2_grpc.PredictionServiceStub:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


@pytest.fixture(scope="module")
def models(channel: grpc.Channel) -> model_service_pb2_grpc.ModelServiceStub:
    return model_service_pb2_grpc.ModelServiceStub(channel)


def request(
    signature: str = "",
    *,
    model: str = "half_plus_two",
    version: int | None = None,
    label: str | None = None,
    **inputs: object,
) -> predict_pb2.PredictRequest:
    message = predict_pb2.PredictRequest()
    message.model_spec.name = model
    message.model_spec.signature_name = signature
    if version is not None:
        message.model_spec.version.value = version
    if label is not None:
        message.model_spec.version_label = label
    for alias, value in inputs.items():
        message.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return message


def refused(call: object, message: object, **options: object) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as error:
        call(message, timeout=30, **options)  # type: ignore[operator]
    return error.value.code().name, error.value.details()


def test_predict_answers_in_typed_fields_and_names_what_answered(prediction: object) -> None:
    answer = prediction.Predict(request(x=np.float32([1, 2])), timeout=30)
    assert [3.5, 4.0] == list(answer.outputs["y"].float_val)
    assert answer.outputs["y"].tensor_content == b""
    assert ("half_plus_two", 3, "serving_default") == (
        answer.model_spec.name,
        answer.model_spec.version.value,
        answer.model_spec.signature_name,
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [({"version": 1}, 2.0), ({"version": 3}, 3.0), ({"label": "stable"}, 2.0), ({}, 3.0)],
    ids=["version 1", "version 3", "label", "highest"],
)
def test_versions_and_labels(prediction: object, choice: dict[str, object], expected: float) -> None:
    answer = prediction.Predict(request(x=np.float32([0]), **choice), timeout=30)
    assert [expected] == list(answer.outputs["y"].float_val)


def test_a_tensorflow_2_model_is_served_the_same(prediction: object) -> None:
    answer = prediction.Predict(request(model="tf2", x=np.float32([4])), timeout=30)
    assert [4.0] == list(answer.outputs["output_0"].float_val)


def test_the_fed_shape_is_not_checked(prediction: object) -> None:
    answer = prediction.Predict(request(x=np.float32([[2], [4]])), timeout=30)
    assert [2, 1] == [dim.size for dim in answer.outputs["y"].tensor_shape.dim]


@pytest.mark.parametrize("dimensions", [65, 254])
def test_more_dimensions_than_numpy_has(prediction: object, dimensions: int) -> None:
    answer = prediction.Predict(ranked(dimensions), timeout=30).outputs["y"]
    assert ([1] * dimensions, [5.0]) == ([dim.size for dim in answer.tensor_shape.dim], list(answer.float_val))


def test_many_dimensions_of_many_values(prediction: object) -> None:
    values = np.arange(2**19, dtype=np.float32)
    message = ranked(65, len(values))
    message.inputs["x"].tensor_content = values.tobytes()
    answer = prediction.Predict(message, timeout=30).outputs["y"]
    assert [len(values), *[1] * 64] == [dim.size for dim in answer.tensor_shape.dim]
    np.testing.assert_array_equal(values / 2 + 3, answer.float_val)


def test_an_output_filter_chooses(prediction: object) -> None:
    message = request("two", a=np.float32([5]), b=np.float32([2]))
    message.output_filter.append("diff")
    assert ["diff"] == list(prediction.Predict(message, timeout=30).outputs)


def test_strings_keep_every_byte(prediction: object) -> None:
    answer = prediction.Predict(request("text", s=[b"a\0\xff", b""]), timeout=30)
    assert [b"a\0\xff", b""] == list(answer.outputs["t"].string_val)


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


REFUSALS = [
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


@pytest.mark.parametrize(("message", "code", "text"), REFUSALS)
def test_refusals(prediction: object, message: object, code: str, text: str) -> None:
    assert (code, text) == refused(prediction.Predict, message)


@pytest.mark.parametrize("dtype", [tf.resource, tf.variant], ids=["resource", "variant"])
@pytest.mark.parametrize("sizes", [[], [0], [2, 3], [-1], [1] * 255, [2**60], [10**10], [1, 10**10]], ids=str)
def test_handles_of_any_shape_are_refused_in_the_memory_of_one(
    server: ServerProcess, prediction: object, dtype: tf.DType, sizes: list[int]
) -> None:
    message = request(x=np.float32(0))
    message.inputs["x"].Clear()
    message.inputs["x"].dtype = dtype.as_datatype_enum
    for size in sizes:
        message.inputs["x"].tensor_shape.dim.add(size=size)
    code, text = refused(prediction.Predict, message)
    is_no_shape = len(sizes) > 254 or any(size in (-1, 2**60) for size in sizes)
    expected = (
        "Invalid resource type hash code: 0" if dtype is tf.resource else "Expects arg[0] to be float but variant"
    )
    assert ("INVALID_ARGUMENT", True) == (
        code,
        text.startswith("tensor parsing error: x" if is_no_shape else expected),
    ), text
    status = dict(
        line.split(":", 1) for line in Path("/proc", str(server.process.pid), "status").read_text().splitlines()
    )
    assert int(status["VmHWM"].split()[0]) < 8 << 20  # kilobytes; 10^10 handles take ten times as many


def test_a_deadline_stops_the_run(prediction: object) -> None:
    with pytest.raises(grpc.RpcError) as error:
        prediction.Predict(request("slow", n=np.int32(2**31 - 1)), timeout=0.5)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def example(x: float) -> tf.train.Example:
    return tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [x]})}))


def test_classify(prediction: object) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "classify"
    message.input.example_list.examples.extend([example(1), example(2)])
    answer = prediction.Classify(message, timeout=30)
    found = [(entry.label, entry.score) for row in answer.result.classifications for entry in row.classes]
    assert [("half", 3.5), ("half", 4.0)] == found
    assert answer.model_spec.signature_name == "classify"


def test_a_context_is_merged_into_each_example(prediction: object) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "classify"
    message.input.example_list_with_context.context.CopyFrom(example(10))
    message.input.example_list_with_context.examples.extend([tf.train.Example(), example(2)])
    answer = prediction.Classify(message, timeout=30)
    assert [8.0, 4.0] == [row.classes[0].score for row in answer.result.classifications]


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("nosuch", "No signature was found with the name: nosuch"),
        ("two", "Expected one input Tensor."),
        ("classify", "Input is empty."),
    ],
)
def test_classify_refusals(prediction: object, signature: str, text: str) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", signature
    assert ("INVALID_ARGUMENT", text) == refused(prediction.Classify, message)


def test_regress(prediction: object) -> None:
    message = regression_pb2.RegressionRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "regress"
    message.input.example_list.examples.extend([example(1), example(2)])
    answer = prediction.Regress(message, timeout=30)
    assert [3.5, 4.0] == [row.value for row in answer.result.regressions]
    assert ("regress", 3) == (answer.model_spec.signature_name, answer.model_spec.version.value)


def inference(*tasks: tuple[str, str, str]) -> inference_pb2.MultiInferenceRequest:
    message = inference_pb2.MultiInferenceRequest()
    message.input.example_list.examples.extend([example(1), example(2)])
    for model, signature, method in tasks:
        task = message.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = model, signature
    return message


CLASSIFY, REGRESS = ("half_plus_two", "classify", "classify"), ("half_plus_two", "regress", "regress")


def test_multi_inference_answers_every_task_in_order(prediction: object) -> None:
    answer = prediction.MultiInference(inference(REGRESS, CLASSIFY), timeout=30)
    first, second = answer.results
    assert [3.5, 4.0] == [row.value for row in first.regression_result.regressions]
    assert ["half", "half"] == [row.classes[0].label for row in second.classification_result.classifications]
    assert ["regress", "classify"] == [result.model_spec.signature_name for result in answer.results]


@pytest.mark.parametrize(
    ("tasks", "code", "text"),
    [
        ([], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (
            [CLASSIFY, ("", "regress", "regress")],
            "INVALID_ARGUMENT",
            "Found ModelSpec with an empty model name.",
        ),
        (
            [CLASSIFY, ("tf2", "regress", "regress")],
            "INVALID_ARGUMENT",
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [("half_plus_two", "two", "regress"), ("tf2", "regress", "regress")],
            "INVALID_ARGUMENT",
            "Expected one input Tensor.",
        ),
        ([CLASSIFY, CLASSIFY], "INVALID_ARGUMENT", "Duplicate evaluation of signature: classify"),
        (
            [("half_plus_two", "s", "regress")],
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: s",
        ),
        (
            [("half_plus_two", "classify", "predict")],
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
        ([("half_plus_two", "two", "regress")], "INVALID_ARGUMENT", "Expected one input Tensor."),
    ],
)
def test_multi_inference_refusals(prediction: object, tasks: list[tuple[str, str, str]], code: str, text: str) -> None:
    assert (code, text) == refused(prediction.MultiInference, inference(*tasks))


def test_the_first_task_names_the_model(prediction: object) -> None:
    message = inference_pb2.MultiInferenceRequest()
    message.tasks.add(method_name="tensorflow/serving/classify")
    assert ("INVALID_ARGUMENT", "ModelSpec has no name specified.") == refused(prediction.MultiInference, message)


def test_metadata_holds_all_signatures(prediction: object) -> None:
    message = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    message.model_spec.name = "half_plus_two"
    answer = prediction.GetModelMetadata(message, timeout=30)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert ["classify", "none", "regress", "serving_default", "slow", "text", "two"] == sorted(signatures.signature_def)
    assert signatures.signature_def["classify"].method_name == "tensorflow/serving/classify"
    assert ("half_plus_two", 3, "") == (
        answer.model_spec.name,
        answer.model_spec.version.value,
        answer.model_spec.signature_name,
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["size"], "Metadata field size is not supported"),
    ],
)
def test_metadata_refusals(prediction: object, fields: list[str], text: str) -> None:
    message = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    message.model_spec.name = "half_plus_two"
    assert ("INVALID_ARGUMENT", text) == refused(prediction.GetModelMetadata, message)
    message.ClearField("model_spec")
    assert ("INVALID_ARGUMENT", "Missing ModelSpec") == refused(prediction.GetModelMetadata, message)


def test_status_lists_versions_highest_first(models: object) -> None:
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = "half_plus_two"
    answer = models.GetModelStatus(message, timeout=30)
    assert [(3, 30), (1, 30)] == [(entry.version, entry.state) for entry in answer.model_version_status]
    message.model_spec.version.value = 1
    assert [1] == [entry.version for entry in models.GetModelStatus(message, timeout=30).model_version_status]


def test_status_refusals(models: object) -> None:
    message = get_model_status_pb2.GetModelStatusRequest()
    assert ("INVALID_ARGUMENT", "Missing ModelSpec") == refused(models.GetModelStatus, message)
    message.model_spec.name = "m"
    assert ("NOT_FOUND", "Could not find any versions of model m") == refused(models.GetModelStatus, message)
    message.model_spec.name = "half_plus_two"
    message.model_spec.version.value = 2
    assert ("NOT_FOUND", "Could not find version 2 of model half_plus_two") == refused(models.GetModelStatus, message)


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        pytest.param("/tensorflow.serving.PredictionService/Nothing", b"", "UNIMPLEMENTED", id="unknown method"),
        pytest.param("/no.such.Service/Predict", b"", "UNIMPLEMENTED", id="unknown service"),
        pytest.param("/tensorflow.serving.PredictionService/Predict", b"\xff\xff", "INTERNAL", id="no protobuf"),
    ],
)
def test_what_is_no_call_of_ours(channel: grpc.Channel, path: str, data: bytes, code: str) -> None:
    assert (code, "") == refused(channel.unary_unary(path), data)


def test_a_message_of_64_mb_goes_there_and_back(prediction: object) -> None:
    x = np.arange(16 * 2**20, dtype=np.float32)
    message = request(x=np.float32([0]))
    message.inputs["x"].ClearField("float_val")
    message.inputs["x"].tensor_content = x.tobytes()
    message.inputs["x"].tensor_shape.dim[0].size = len(x)
    answer = prediction.Predict(message, timeout=60)
    assert np.array_equal(x / 2 + 3, np.array(answer.outputs["y"].float_val, np.float32))


def test_many_calls_at_once_share_one_model(prediction: object) -> None:
    """64 callers, 512 calls: every answer is the caller's own."""

    def ask(number: int) -> list[float]:
        return list(prediction.Predict(request(x=np.float32([number])), timeout=60).outputs["y"].float_val)

    with ThreadPoolExecutor(64) as callers:
        assert [[number / 2 + 3] for number in range(512)] == list(callers.map(ask, range(512)))


def test_a_caller_without_a_deadline_is_answered(prediction: object) -> None:
    assert [3.5] == list(prediction.Predict(request(x=np.float32([1]))).outputs["y"].float_val)
