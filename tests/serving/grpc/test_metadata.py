"""Metadata, status and unknown calls over gRPC, called with TensorFlow Serving's official stubs."""

from __future__ import annotations

import grpc
import pytest
from grpc_calls import error_of
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2


def test_metadata_has_all_signatures(prediction: object) -> None:
    message = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    message.model_spec.name = "half_plus_two"
    response = prediction.GetModelMetadata(message, timeout=30)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert ["classify", "none", "regress", "serving_default", "slow", "text", "two"] == sorted(signatures.signature_def)
    assert signatures.signature_def["classify"].method_name == "tensorflow/serving/classify"
    assert ("half_plus_two", 3, "") == (
        response.model_spec.name,
        response.model_spec.version.value,
        response.model_spec.signature_name,
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field"),
        (["size"], "Metadata field size is not supported"),
    ],
)
def test_invalid_metadata_requests(prediction: object, fields: list[str], text: str) -> None:
    message = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
    message.model_spec.name = "half_plus_two"
    assert ("INVALID_ARGUMENT", text) == error_of(prediction.GetModelMetadata, message)
    message.ClearField("model_spec")
    assert ("INVALID_ARGUMENT", "Missing ModelSpec") == error_of(prediction.GetModelMetadata, message)


def test_status_lists_versions_highest_first(models: object) -> None:
    message = get_model_status_pb2.GetModelStatusRequest()
    message.model_spec.name = "half_plus_two"
    response = models.GetModelStatus(message, timeout=30)
    assert [(3, 30), (1, 30)] == [(entry.version, entry.state) for entry in response.model_version_status]
    message.model_spec.version.value = 1
    assert [1] == [entry.version for entry in models.GetModelStatus(message, timeout=30).model_version_status]


def test_invalid_status_requests(models: object) -> None:
    message = get_model_status_pb2.GetModelStatusRequest()
    assert ("INVALID_ARGUMENT", "Missing ModelSpec") == error_of(models.GetModelStatus, message)
    message.model_spec.name = "m"
    assert ("NOT_FOUND", "Could not find any versions of model m") == error_of(models.GetModelStatus, message)
    message.model_spec.name = "half_plus_two"
    message.model_spec.version.value = 2
    assert ("NOT_FOUND", "Could not find version 2 of model half_plus_two") == error_of(models.GetModelStatus, message)


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        pytest.param("/tensorflow.serving.PredictionService/Nothing", b"", "UNIMPLEMENTED", id="unknown method"),
        pytest.param("/no.such.Service/Predict", b"", "UNIMPLEMENTED", id="unknown service"),
        pytest.param("/tensorflow.serving.PredictionService/Predict", b"\xff\xff", "INTERNAL", id="no protobuf"),
    ],
)
def test_unknown_calls_and_undecodable_requests(channel: grpc.Channel, path: str, data: bytes, code: str) -> None:
    assert (code, "") == error_of(channel.unary_unary(path), data)
