"""Messages of PredictionService and ModelService to plain values, and back."""

from __future__ import annotations

import numpy as np
import pytest

from savedmodel_bakery.wire import dtypes, messages, responses, schema, tensors
from savedmodel_bakery.wire.attachments import LARGE_BYTES, TensorMessage
from savedmodel_bakery.wire.messages import ModelSpec
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

FLOAT = dtypes.BY_NAME["float"]
SPEC = ModelSpec("m", 3, None, "top_k")


def predict_request(**inputs: np.ndarray) -> bytes:
    message = schema.PredictRequest(output_filter=["y"])
    message.model_spec.name, message.model_spec.version.value, message.model_spec.signature_name = "m", 3, "top_k"
    with_large_inputs = TensorMessage(message, "inputs")
    for alias, array in inputs.items():
        with_large_inputs.add(alias, array, packed=True)
    return with_large_inputs.SerializeToString()


def test_small_and_large_inputs_are_one_mapping() -> None:
    large = np.zeros(LARGE_BYTES // 4, np.float32)
    request = messages.parse_predict_request(predict_request(x=np.float32([1, 2]), large=large))
    assert (SPEC, ["y"], {"x", "large"}, 2) == (
        request.spec,
        list(request.output_filter),
        set(request.inputs),
        len(request.inputs),
    )
    assert ({"large"}, FLOAT, [1.0, 2.0], large.shape) == (
        set(request.inputs.attachments),
        request.inputs["x"].dtype,
        request.inputs["x"].array.tolist(),
        request.inputs["large"].array.shape,
    )


def test_inputs_are_decoded_only_when_they_are_read() -> None:
    message = schema.PredictRequest()
    message.inputs["x"].dtype = FLOAT.number
    message.inputs["x"].tensor_content = b"abc"
    inputs = messages.read_predict_request(message).inputs
    assert ("x" in inputs, "y" in inputs, ["x"]) == (True, False, list(inputs))
    with pytest.raises(StatusError, match="INVALID_ARGUMENT"):
        inputs["x"]


def test_reading_an_unknown_alias_does_not_add_it() -> None:
    inputs = messages.parse_predict_request(predict_request()).inputs
    with pytest.raises(KeyError):
        inputs["x"]
    assert 0 == len(inputs)


@pytest.mark.parametrize("name", ["resource", "variant"])
def test_handles_are_decoded_to_one_element_per_row(name: str) -> None:
    message = schema.PredictRequest()
    number = {"resource": 20, "variant": 21}[name]
    message.inputs["x"].dtype = number
    message.inputs["x"].tensor_shape.dim.add(size=10**10)
    tensor = messages.read_predict_request(message).inputs["x"]
    assert ((10**10,), (0,), name) == (tensor.array.shape, tensor.array.strides, tensor.dtype.name)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"version": {"value": 7}}, ModelSpec("m", 7, None, "")),
        ({"version": {"value": 0}}, ModelSpec("m", 0, None, "")),
        ({"version_label": "stable"}, ModelSpec("m", None, "stable", "")),
        ({"signature_name": "s"}, ModelSpec("m", None, None, "s")),
    ],
    ids=["version", "version 0", "label", "signature"],
)
def test_model_specs(fields: dict[str, object], expected: ModelSpec) -> None:
    request = schema.GetModelStatusRequest(model_spec={"name": "m", **fields})
    assert expected == messages.read_model_spec(request)


def test_a_request_without_model_spec() -> None:
    assert messages.read_model_spec(schema.GetModelStatusRequest()) is None


def example(**features: float) -> object:
    message = schema.Example()
    for name, value in features.items():
        message.features.feature[name].float_list.value.append(value)
    return message


def test_a_context_is_merged_into_each_example() -> None:
    request = schema.ClassificationRequest(
        input={"example_list_with_context": {"context": example(a=1, b=2), "examples": [example(a=3), example()]}}
    )
    merged = [schema.Example.FromString(content) for content in messages.read_examples_request(request).examples]
    values = [{name: list(f.float_list.value) for name, f in m.features.feature.items()} for m in merged]
    assert [{"a": [3.0], "b": [2.0]}, {"a": [1.0], "b": [2.0]}] == values


def test_a_request_without_input_has_no_examples() -> None:
    assert [] == messages.read_examples_request(schema.ClassificationRequest()).examples


def test_tasks_of_a_multi_inference() -> None:
    request = METHODS["MultiInference"].request()
    request.tasks.add(model_spec={"name": "m", "signature_name": "s"}, method_name="tensorflow/serving/regress")
    assert [(ModelSpec("m", None, None, "s"), "tensorflow/serving/regress")] == (
        messages.read_multi_inference_request(request).tasks
    )


@pytest.mark.parametrize(("packed", "field"), [(False, "float_val"), (True, "tensor_content")])
def test_predict_responses_with_small_outputs(packed: bool, field: str) -> None:
    outputs = {"y": Tensor(np.float32([2.5]), FLOAT)}
    response = responses.make_predict_response(SPEC, outputs, packed=packed).message
    assert ("m", 3, "top_k") == (
        response.model_spec.name,
        response.model_spec.version.value,
        response.model_spec.signature_name,
    )
    assert [2.5] == tensors.decode_array(response.outputs["y"]).tolist()
    assert getattr(response.outputs["y"], field)


def test_large_outputs_are_attachments() -> None:
    large = np.arange(LARGE_BYTES // 4, dtype=np.float32)
    outputs = {"y": Tensor(np.float32([2.5]), FLOAT), "large": Tensor(large, FLOAT)}
    response = responses.make_predict_response(SPEC, outputs, packed=False)
    assert {"large"} == set(response.attachments)
    parsed = schema.PredictResponse.FromString(response.SerializeToString())
    assert [2.5] == list(parsed.outputs["y"].float_val)
    assert np.array_equal(large, parsed.outputs["large"].float_val)


@pytest.mark.parametrize(
    ("classes", "scores", "expected"),
    [
        ([[b"a", b"b"]], [[0.25, 0.5]], [[("a", 0.25), ("b", 0.5)]]),
        (None, [[0.25]], [[("", 0.25)]]),
        ([[b"a"]], None, [[("a", 0.0)]]),
    ],
    ids=["both", "scores only", "classes only"],
)
def test_classifications(classes: object, scores: object, expected: object) -> None:
    labels = None if classes is None else np.array(classes, object)
    values = None if scores is None else np.array(scores, np.float32)
    result = responses.make_classification_response(SPEC, (labels, values)).result
    assert expected == [[(entry.label, entry.score) for entry in row.classes] for row in result.classifications]


def test_multi_inference_responses_have_a_result_per_task() -> None:
    results = [np.float32([1.5]), (np.array([[b"a"]], object), np.float32([[0.5]]))]
    response = responses.make_multi_inference_response([SPEC, SPEC._replace(signature_name="other")], results)
    assert [("top_k", "regression_result"), ("other", "classification_result")] == [
        (entry.model_spec.signature_name, entry.WhichOneof("result")) for entry in response.results
    ]
    assert [1.5] == [entry.value for entry in response.results[0].regression_result.regressions]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["signature_def", "size"], "Metadata field size is not supported"),
    ],
)
def test_invalid_metadata_fields(fields: list[str], reason: str) -> None:
    with pytest.raises(StatusError, match=f"^INVALID_ARGUMENT: {reason}$"):
        messages.check_metadata_fields(fields)


def test_metadata_responses() -> None:
    signature = schema.SignatureDef(method_name="tensorflow/serving/predict")
    response = responses.make_metadata_response("m", 3, {"s": signature})
    packed = schema.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(packed)
    assert ({"s": signature}, "m", 3) == (
        dict(packed.signature_def),
        response.model_spec.name,
        response.model_spec.version.value,
    )


def test_status_responses() -> None:
    error = StatusError(Code.NOT_FOUND, "no saved_model.pb")
    response = responses.make_status_response([(3, 30, None), (1, 50, error)])
    assert [(3, 30, 0, ""), (1, 50, 5, "no saved_model.pb")] == [
        (entry.version, entry.state, entry.status.error_code, entry.status.error_message)
        for entry in response.model_version_status
    ]
