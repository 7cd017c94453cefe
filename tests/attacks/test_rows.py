"""Row 1: many rows in few bytes. They are counted before they are filled up, and run in parts."""

from __future__ import annotations

import gzip

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from attacked_server import CLASSIFIER, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT, request
from image_bombs import RGB, png
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def predict(server: AttackedServer, message: predict_pb2.PredictRequest) -> tuple[str, str, list[bool]]:
    """Return the status, its message, and for each row whether it was classified."""
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as channel:
        try:
            response = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(message, timeout=60)
        except grpc.RpcError as error:
            return error.code().name, error.details(), []
    return "OK", "", list(response.outputs["ok"].bool_val)


def one_string(rows: int) -> predict_pb2.PredictRequest:
    """One empty string that stands for all rows; see "filling up" in tensorflow/core/framework/tensor.proto."""
    message = request("top_k", model=CLASSIFIER)
    message.inputs["image"].dtype = tf.string.as_datatype_enum
    message.inputs["image"].tensor_shape.dim.add(size=rows)
    message.inputs["image"].string_val.append(b"")
    return message


def test_two_thousand_rows_from_one_string(classifier: AttackedServer) -> None:
    """Sent: 51 bytes that stand for 2000 empty images. Allowed: 2000 row errors, for 200 MB at most."""
    with HonestCallers(classifier) as others, classifier.growing_at_most(200):
        assert ("OK", "", [False] * 2000) == predict(classifier, one_string(2000))
    others.assert_served()


@pytest.mark.parametrize("rows", [100_000, 10**12])
def test_more_rows_than_allowed_from_one_string(classifier: AttackedServer, rows: int) -> None:
    """Sent: some 50 bytes that stand for very many empty images. Allowed: RESOURCE_EXHAUSTED, without memory."""
    with HonestCallers(classifier) as others, classifier.growing_at_most(50):
        code, text, _ = predict(classifier, one_string(rows))
    assert ("RESOURCE_EXHAUSTED", True) == (code, f"{rows} rows" in text and "--max_rows_per_request" in text), text
    others.assert_served()


def test_twenty_thousand_empty_strings_in_a_small_body(classifier: AttackedServer) -> None:
    """Sent: 20,000 empty strings in 139 bytes of gzip. Allowed: 429 with the flag, for 50 MB at most."""
    body = gzip.compress(b'{"signature_name":"top_k","inputs":[' + b",".join([b'""'] * 20_000) + b"]}")
    url = f"{classifier.url}/v1/models/{CLASSIFIER}:predict"
    with HonestCallers(classifier) as others, classifier.growing_at_most(50):
        response = requests.post(url, data=body, headers={"Content-Encoding": "gzip"}, timeout=60)
    assert (429, True) == (response.status_code, "--max_rows_per_request" in response.json()["error"])
    others.assert_served()


def test_three_hundred_images(classifier: AttackedServer) -> None:
    """Sent: 300 tiny images in 22 kB. Allowed: all are classified, for 500 MB at most: not all run at once."""
    images = request("top_k", model=CLASSIFIER, image=np.array([png(8, RGB, 8)] * 300, object))
    with HonestCallers(classifier) as others, classifier.growing_at_most(500):
        assert ("OK", "", [True] * 300) == predict(classifier, images)
    others.assert_served()
