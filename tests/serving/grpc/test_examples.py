"""Classify, Regress and MultiInference over gRPC, called with TensorFlow Serving's official stubs."""

from __future__ import annotations

import pytest
import tensorflow as tf
from grpc_calls import error_of
from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2


def example(x: float) -> tf.train.Example:
    return tf.train.Example(features=tf.train.Features(feature={"x": tf.train.Feature(float_list={"value": [x]})}))


def test_classify(prediction: object) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "classify"
    message.input.example_list.examples.extend([example(1), example(2)])
    response = prediction.Classify(message, timeout=30)
    pairs = [(entry.label, entry.score) for row in response.result.classifications for entry in row.classes]
    assert [("half", 3.5), ("half", 4.0)] == pairs
    assert response.model_spec.signature_name == "classify"


def test_a_context_is_merged_into_each_example(prediction: object) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "classify"
    message.input.example_list_with_context.context.CopyFrom(example(10))
    message.input.example_list_with_context.examples.extend([tf.train.Example(), example(2)])
    response = prediction.Classify(message, timeout=30)
    assert [8.0, 4.0] == [row.classes[0].score for row in response.result.classifications]


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("nosuch", "No signature was found with the name: nosuch"),
        ("two", "Expected one input Tensor."),
        ("classify", "Input is empty."),
    ],
)
def test_invalid_classify_requests(prediction: object, signature: str, text: str) -> None:
    message = classification_pb2.ClassificationRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", signature
    assert ("INVALID_ARGUMENT", text) == error_of(prediction.Classify, message)


def test_regress(prediction: object) -> None:
    message = regression_pb2.RegressionRequest()
    message.model_spec.name, message.model_spec.signature_name = "half_plus_two", "regress"
    message.input.example_list.examples.extend([example(1), example(2)])
    response = prediction.Regress(message, timeout=30)
    assert [3.5, 4.0] == [row.value for row in response.result.regressions]
    assert ("regress", 3) == (response.model_spec.signature_name, response.model_spec.version.value)


def inference(*tasks: tuple[str, str, str]) -> inference_pb2.MultiInferenceRequest:
    message = inference_pb2.MultiInferenceRequest()
    message.input.example_list.examples.extend([example(1), example(2)])
    for model, signature, method in tasks:
        task = message.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = model, signature
    return message


CLASSIFY, REGRESS = ("half_plus_two", "classify", "classify"), ("half_plus_two", "regress", "regress")


def test_multi_inference_answers_every_task_in_order(prediction: object) -> None:
    response = prediction.MultiInference(inference(REGRESS, CLASSIFY), timeout=30)
    first, second = response.results
    assert [3.5, 4.0] == [row.value for row in first.regression_result.regressions]
    assert ["half", "half"] == [row.classes[0].label for row in second.classification_result.classifications]
    assert ["regress", "classify"] == [result.model_spec.signature_name for result in response.results]


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
def test_invalid_multi_inference_requests(
    prediction: object, tasks: list[tuple[str, str, str]], code: str, text: str
) -> None:
    assert (code, text) == error_of(prediction.MultiInference, inference(*tasks))


def test_the_first_task_names_the_model(prediction: object) -> None:
    message = inference_pb2.MultiInferenceRequest()
    message.tasks.add(method_name="tensorflow/serving/classify")
    assert ("INVALID_ARGUMENT", "ModelSpec has no name specified.") == error_of(prediction.MultiInference, message)
