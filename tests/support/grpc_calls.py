"""Messages and errors of gRPC calls."""

from __future__ import annotations

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

NO_LIMIT = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def request(
    signature: str = "",
    *,
    model: str = "half_plus_two",
    version: int | None = None,
    label: str | None = None,
    **inputs: object,
) -> predict_pb2.PredictRequest:
    """Make a PredictRequest; inputs are anything that TensorFlow makes a tensor of."""
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


def error_of(call: object, message: object, **options: object) -> tuple[str, str]:
    """Make a call that must fail; return code and message."""
    with pytest.raises(grpc.RpcError) as error:
        call(message, timeout=30, **options)  # type: ignore[operator]
    return error.value.code().name, error.value.details()
