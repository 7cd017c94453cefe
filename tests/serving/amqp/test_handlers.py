"""Messages to responses, on a real model and on a real model server; no broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import model_makers
import numpy as np
import pytest
from amqp_worker import answering_server
from server_process import free_port

from savedmodel_bakery.client.servers import parse_server
from savedmodel_bakery.serving.amqp.backends import RemoteServer
from savedmodel_bakery.serving.amqp.codec import Message, Response
from savedmodel_bakery.serving.amqp.handlers import CallLimits, Handlers
from savedmodel_bakery.serving.loaded_model import LoadedModel
from savedmodel_bakery.wire import amqp, schema
from savedmodel_bakery.wire.model_config import ModelConfig
from savedmodel_bakery.wire.status import Code
from savedmodel_bakery.wire.tensors import decode_array, encode_tensor


class RecordingBackend(Protocol):
    """See conftest.py."""

    calls: list[str]


def predict(
    signature: str = "", version: int | None = None, filter_: tuple[str, ...] = (), **inputs: np.ndarray
) -> Message:
    request = schema.PredictRequest(output_filter=filter_)
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = signature
    if version is not None:
        request.model_spec.version.value = version
    for alias, array in inputs.items():
        encode_tensor(array, into=request.inputs[alias])
    return Message(request.SerializeToString(), amqp.PROTOBUF)


def outputs(response: Response) -> dict[str, list[Any]]:
    assert response.error is None, response.error
    tensors = schema.PredictResponse.FromString(response.body).outputs
    return {alias: decode_array(tensors[alias]).tolist() for alias in tensors}


LIMITS = CallLimits(timeout_s=30)
X = np.float32([1, 2])
LARGE = np.zeros(1 << 19, np.float32)


def test_predict_is_answered_with_the_version_that_ran(handlers: Handlers) -> None:
    (response,) = handlers.handle([predict(x=X)])
    assert {"y": [2.5, 3.0]} == outputs(response)
    spec = schema.PredictResponse.FromString(response.body).model_spec
    assert ("half_plus_two", 1, "serving_default") == (spec.name, spec.version.value, spec.signature_name)
    assert ("tensorflow.serving.PredictResponse", amqp.PROTOBUF) == (response.type, response.content_type)
    assert [2.0] * LARGE.size == outputs(handlers.handle([predict(x=LARGE)])[0])["y"]


def make_request(method: str, signature: str = "", *examples: float, **fields: Any) -> Any:
    request = schema.METHODS[method].request(**fields)
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = signature
    for value in examples:
        request.input.example_list.examples.add().features.feature["x"].float_list.value.append(value)
    return request


def make_multi_inference_request() -> Any:
    request = schema.METHODS["MultiInference"].request()
    for signature, method in (("classify", "tensorflow/serving/classify"), ("regress", "tensorflow/serving/regress")):
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = "half_plus_two", signature
    request.input.example_list.examples.add().features.feature["x"].float_list.value.append(3)
    return request


OTHER_METHODS = {
    "Classify": (
        make_request("Classify", "classify", 3),
        lambda response: [(row.classes[0].label, row.classes[0].score) for row in response.result.classifications],
        [("half", 3.5)],
    ),
    "Regress": (
        make_request("Regress", "regress", 3, 4),
        lambda response: [row.value for row in response.result.regressions],
        [3.5, 4.0],
    ),
    "MultiInference": (
        make_multi_inference_request(),
        lambda response: [result.model_spec.signature_name for result in response.results],
        ["classify", "regress"],
    ),
    "GetModelMetadata": (
        make_request("GetModelMetadata", metadata_field=["signature_def"]),
        lambda response: (response.model_spec.version.value, list(response.metadata)),
        (1, ["signature_def"]),
    ),
    "GetModelStatus": (
        make_request("GetModelStatus"),
        lambda response: response.model_version_status[0].state,
        30,
    ),
}


@pytest.mark.parametrize("method", OTHER_METHODS)
def test_each_other_method_is_answered_by_its_message_type(handlers: Handlers, method: str) -> None:
    request, read, expected = OTHER_METHODS[method]
    message = schema.METHODS[method]
    content = request.SerializeToString()
    (response,) = handlers.handle([Message(content, amqp.PROTOBUF, message.request.DESCRIPTOR.full_name)])
    assert (None, message.response.DESCRIPTOR.full_name) == (response.error, response.type)
    assert expected == read(message.response.FromString(response.body))


@pytest.mark.parametrize("method", ["Predict", *OTHER_METHODS])
def test_a_request_without_a_model_spec_is_rejected(handlers: Handlers, method: str) -> None:
    message_type = schema.METHODS[method].request
    request = message_type()
    if method == "MultiInference":
        request.tasks.add()
    (response,) = handlers.handle(
        [Message(request.SerializeToString(), amqp.PROTOBUF, message_type.DESCRIPTOR.full_name)]
    )
    assert response.error is not None
    assert (Code.INVALID_ARGUMENT, False) == (response.error.code, response.dead_letter)


JSON_BODIES = {
    "rows": (b'{"instances": [1.0, 2.0]}', {}, {"predictions": [2.5, 3.0]}),
    "columns": (b'{"inputs": {"x": [1.0]}}', {}, {"outputs": [2.5]}),
    "signature in the body": (
        b'{"signature_name": "two", "inputs": {"a": [3], "b": [1]}}',
        {},
        {"outputs": {"diff": [2.0], "sum": [4.0]}},
    ),
    "signature in a header": (
        b'{"inputs": {"a": [3], "b": [1]}}',
        {"signature": "two", "version": 1},
        {"outputs": {"diff": [2.0], "sum": [4.0]}},
    ),
}


@pytest.mark.parametrize(("body", "headers", "expected"), JSON_BODIES.values(), ids=JSON_BODIES)
def test_a_json_response_is_that_of_rest(
    handlers: Handlers, body: bytes, headers: dict[str, Any], expected: dict[str, Any]
) -> None:
    (response,) = handlers.handle([Message(body, amqp.JSON, headers=headers)])
    assert (amqp.JSON, None) == (response.content_type, response.error)
    assert expected == json.loads(response.body)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/JSON"])
def test_parameters_and_case_of_a_content_type_are_ignored(handlers: Handlers, content_type: str) -> None:
    (response,) = handlers.handle([Message(b'{"instances": [1.0]}', content_type)])
    assert {"predictions": [2.5]} == json.loads(response.body)
    invalid = Message(b"", f"{amqp.PROTOBUF};x=1", "tensorflow.serving.PredictRequest")
    (response,) = handlers.handle([invalid])
    assert (amqp.PROTOBUF, b"") == (response.content_type, response.body)


def test_an_image_becomes_one_row_of_the_named_input(handlers: Handlers) -> None:
    headers = {"signature": "text", "input": "s"}
    (response,) = handlers.handle([Message(b"plain\0", "image/png", headers=headers)])
    assert {"predictions": [{"t": "plain\0", "t_bytes": {"b64": "cGxhaW4A"}}]} == json.loads(response.body)


UNDECODABLE = {
    "content type": (Message(b"x", "text/plain"), 'unsupported content type "text/plain": must be '),
    "no content type": (Message(b"x", ""), 'unsupported content type "": must be '),
    "type": (Message(b"", amqp.PROTOBUF, "os.system"), 'unsupported type "os.system": must be one of '),
    "protobuf": (
        Message(b"\xff", amqp.PROTOBUF),
        "the body (1 bytes) is not a valid tensorflow.serving.PredictRequest",
    ),
    "JSON": (Message(b"{", amqp.JSON), "JSON Parse error"),
    "pickle": (Message(b"\x80\x04N.", amqp.JSON), "JSON Parse error"),
}


@pytest.mark.parametrize(("message", "reason"), UNDECODABLE.values(), ids=UNDECODABLE)
def test_an_undecodable_message_is_rejected_and_dead_lettered(
    handlers: Handlers, message: Message, reason: str
) -> None:
    (response,) = handlers.handle([message])
    assert response.error is not None
    assert (Code.INVALID_ARGUMENT, True) == (response.error.code, response.dead_letter)
    assert reason in response.error.message


MISTAKES = {
    "signature": (predict("nope", x=X), Code.FAILED_PRECONDITION, 'Serving signature key "nope" not found.'),
    "version": (predict(version=9, x=X), Code.NOT_FOUND, "Servable not found for request: Specific(half_plus_two, 9)"),
    "JSON signature": (
        Message(b'{"signature_name": "nope", "instances": [1]}', amqp.JSON),
        Code.INVALID_ARGUMENT,
        'Serving signature name: "nope" not found in signature def',
    ),
    "model in a header": (
        Message(b"x", "image/png", headers={"model": "cats"}),
        Code.NOT_FOUND,
        "Servable not found for request: Latest(cats)",
    ),
    "version in a header": (
        Message(b"x", "image/png", headers={"version": -1}),
        Code.INVALID_ARGUMENT,
        'invalid version "-1": must be between 0 and 9223372036854775807',
    ),
    "version and label": (
        Message(b"x", "image/png", headers={"version": 1, "label": "stable"}),
        Code.INVALID_ARGUMENT,
        "the headers version and label exclude each other: set one of them",
    ),
}


def test_a_version_of_thousands_of_digits_is_a_callers_mistake(handlers: Handlers) -> None:
    (response,) = handlers.handle([Message(b"x", "image/png", headers={"version": "9" * 5000})])
    assert response.error is not None
    assert (Code.INVALID_ARGUMENT, False) == (response.error.code, response.dead_letter)


@pytest.mark.parametrize(("message", "code", "reason"), MISTAKES.values(), ids=MISTAKES)
def test_a_callers_mistake_is_answered_but_not_dead_lettered(
    handlers: Handlers, message: Message, code: Code, reason: str
) -> None:
    (response,) = handlers.handle([message])
    assert response.error is not None
    assert (code, reason, False) == (response.error.code, response.error.message, response.dead_letter)
    if message.content_type != amqp.PROTOBUF:
        assert {"error": reason} == json.loads(response.body)


def test_messages_that_fit_are_joined_into_one_call(handlers: Handlers, backend: RecordingBackend) -> None:
    """JSON and protobuf together; each caller gets the rows of his own inputs."""
    messages = [predict("serving_default", x=np.float32([number] * rows)) for number, rows in ((0, 1), (2, 3), (4, 2))]
    messages.append(Message(b'{"instances": [6.0]}', amqp.JSON))
    responses = handlers.handle(messages)
    assert [[2.0], [3.0, 3.0, 3.0], [4.0, 4.0]] == [outputs(response)["y"] for response in responses[:3]]
    assert {"predictions": [5.0]} == json.loads(responses[3].body)
    assert 1 == schema.PredictResponse.FromString(responses[0].body).model_spec.version.value
    assert ["signatures", "Predict"] == backend.calls


def test_messages_that_do_not_fit_are_called_separately(handlers: Handlers, backend: RecordingBackend) -> None:
    """Other output filter, version, signature; inputs without rows."""
    two = {"a": X, "b": X}
    messages = [predict("two", **two), predict("two", filter_=("sum",), **two), predict("two", version=1, **two)]
    messages += [predict(x=X), predict("slow", n=np.int32(3)), predict("slow", n=np.int32(4)), predict("none")]
    assert [
        {"diff": [0, 0], "sum": [2, 4]}, {"sum": [2, 4]}, {"diff": [0, 0], "sum": [2, 4]},
        {"y": [2.5, 3.0]}, {"v": 3}, {"v": 4}, {"c": [1.5]},
    ] == [outputs(response) for response in handlers.handle(messages)]  # fmt: skip
    assert ["Predict"] * 7 == backend.calls


def test_invalid_messages_affect_no_other_message(handlers: Handlers, backend: RecordingBackend) -> None:
    """One has fewer values than its shape, one an invalid shape, one cannot be decoded."""
    truncated = schema.PredictRequest.FromString(predict(x=X).body)
    truncated.inputs["x"].tensor_content = b"\0"
    shapeless = schema.PredictRequest.FromString(predict(x=X).body)
    shapeless.inputs["x"].tensor_shape.dim[0].size = -1
    invalid = [Message(request.SerializeToString(), amqp.PROTOBUF) for request in (truncated, shapeless)]
    responses = handlers.handle([predict(x=X), *invalid, predict(x=X), Message(b"{", amqp.JSON)])
    assert [{"y": [2.5, 3.0]}] * 2 == [outputs(responses[0]), outputs(responses[3])]
    errors = [responses[index].error for index in (1, 2, 4)]
    assert [Code.INVALID_ARGUMENT] * 3 == [error.code for error in errors if error]
    assert ["Predict"] * 3 == backend.calls


def test_a_joined_call_that_fails_is_repeated_for_each_message(handlers: Handlers, backend: RecordingBackend) -> None:
    messages = [predict("nope", x=X), predict("nope", x=X)]
    errors = [response.error for response in handlers.handle(messages)]
    assert [Code.FAILED_PRECONDITION] * 2 == [error.code for error in errors if error]
    assert ["Predict"] * 3 == backend.calls


def test_an_invalid_response_of_the_server_is_an_internal_error() -> None:
    with answering_server(lambda _: b"\xff") as target:
        remote = RemoteServer(parse_server(target))
        responses = Handlers(remote, model_name="half_plus_two", limits=LIMITS).handle([predict(x=X), predict(x=X)])
        remote.close()
    assert [Code.INTERNAL] * 2 == [response.error.code for response in responses if response.error]


def test_a_server_receives_a_predict_message_unchanged_and_its_response_is_returned_unchanged() -> None:
    """Also with a resource handle, a declared shape of 2^60 values and fields that the worker does not know."""
    request = schema.PredictRequest.FromString(predict(x=X).body)
    request.inputs["handle"].dtype = 20
    request.inputs["large"].dtype = 1
    request.inputs["large"].tensor_shape.dim.add(size=1 << 60)
    body = request.SerializeToString() + b"\xfa\x07\x01x"  # field 127
    answer = schema.PredictResponse().SerializeToString() + b"\xfa\x07\x01y"
    received: list[bytes] = []

    def serve(content: bytes) -> bytes:
        received.append(content)
        return answer

    with answering_server(serve) as target:
        remote = RemoteServer(parse_server(target))
        (response,) = Handlers(remote, model_name="half_plus_two", limits=LIMITS).handle([Message(body, amqp.PROTOBUF)])
        remote.close()
    assert ([body], answer, None) == (received, response.body, response.error)


def with_client_id(request: Any) -> None:
    request.client_id = b"me"


def with_request_options(request: Any) -> None:
    request.request_options.SetInParent()


def with_an_unknown_field(request: Any) -> None:
    request.MergeFromString(b"\xfa\x07\x01x")


def with_repeated_values(request: Any) -> None:
    request.inputs["x"].CopyFrom(schema.TensorProto(dtype=1, float_val=[1]))
    request.inputs["x"].tensor_shape.dim.add(size=1000)


@pytest.mark.parametrize("change", [with_client_id, with_request_options, with_an_unknown_field, with_repeated_values])
def test_a_server_receives_what_cannot_be_joined_as_separate_messages(change: Callable[[Any], None]) -> None:
    """The values of the last message would need more memory than the message."""
    request = schema.PredictRequest.FromString(predict(x=X).body)
    change(request)
    body = request.SerializeToString()
    received: list[bytes] = []

    def serve(content: bytes) -> bytes:
        received.append(content)
        return b""

    with answering_server(serve) as target:
        remote = RemoteServer(parse_server(target))
        Handlers(remote, model_name="half_plus_two", limits=LIMITS).handle([Message(body, amqp.PROTOBUF)] * 2)
        remote.close()
    assert [body] * 2 == received


def test_outputs_without_rows_are_never_split(tmp_path: Path) -> None:
    model_makers.batched(tmp_path / "batched")
    local = LoadedModel(ModelConfig("batched", str(tmp_path / "batched")))
    messages = [Message(b'{"signature_name": "total", "inputs": [1, %d]}' % number, amqp.JSON) for number in (2, 3)]
    responses = Handlers(local, model_name="batched", limits=LIMITS).handle(messages)
    assert [{"outputs": 3.0}, {"outputs": 4.0}] == [json.loads(response.body) for response in responses]
    local.close()


def test_an_unreachable_server_makes_messages_unavailable() -> None:
    remote = RemoteServer(parse_server(f"127.0.0.1:{free_port()}"))
    responses = Handlers(remote, model_name="half_plus_two", limits=LIMITS).handle([predict(x=X), predict(x=X)])
    assert [Code.UNAVAILABLE] * 2 == [response.error.code for response in responses if response.error]
    remote.close()


def test_a_response_that_no_message_can_carry_is_an_error(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp, "MAX_MESSAGE_BYTES", 100)
    assert handlers.handle([predict(x=X)])[0].error is None
    (response,) = handlers.handle([predict(x=LARGE)])
    assert response.error is not None
    assert (Code.RESOURCE_EXHAUSTED, b"") == (response.error.code, response.body)
    assert "a RabbitMQ message may have at most 100" in response.error.message
