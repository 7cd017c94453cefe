"""Requests of the v2 protocol that declare more than they have, or have more than they need."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
import requests
from attacked_server import MB, METRICS_PATH, TINY, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT

from savedmodel_bakery.wire.v2 import schema
from savedmodel_bakery.wire.v2.http_encode import HEADER_LENGTH

INFER = schema.METHODS["ModelInfer"].path
CALLS = 8
X: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1]}
TEXT = {"signature_name": "text"}
EIGHT_BYTES = {"parameters": {"binary_data_size": 8}}
FORTY_MB = {"parameters": {"binary_data_size": 40 * MB}}


def post(server: AttackedServer, document: dict[str, Any], data: bytes = b"", **headers: str) -> tuple[int, str]:
    """Return the status and the error of a request."""
    text = json.dumps(document).encode()
    headers = {HEADER_LENGTH: str(len(text)), **headers}
    url = f"{server.url}/v2/models/{TINY}/infer"
    response = requests.post(url, data=text + data, headers=headers, timeout=60)
    return response.status_code, response.json()["error"]


LIES: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "a shape of 2^60 values": (
        {"inputs": [{**X, "shape": [2**60], **EIGHT_BYTES}]},
        bytes(8),
        "8 bytes of data",
    ),
    "a shape of 2^60 values in JSON": (
        {"inputs": [{**X, "shape": [2**40, 2**20], "data": [1]}]},
        b"",
        "data of shape [1]",
    ),
    "a shape whose elements are a number of 4,800 digits": (
        {"inputs": [{**X, "shape": [2**63 - 1] * 254, **EIGHT_BYTES}]},
        bytes(8),
        "shape of too many elements",
    ),
    "such a shape in JSON": (
        {"inputs": [{**X, "shape": [2**63 - 1] * 254, "data": [1]}]},
        b"",
        "shape of too many elements",
    ),
    "a shape of 2^40 strings": (
        {"inputs": [{"name": "s", "datatype": "BYTES", "shape": [2**40], **EIGHT_BYTES}], "parameters": TEXT},
        bytes(8),
        "elements of BYTES alone need",
    ),
    "a size of 2^62 bytes": (
        {"inputs": [{**X, "parameters": {"binary_data_size": 2**62}}]},
        bytes(8),
        "at most the 8 that are left",
    ),
    "a string of 4 GB": (
        {"inputs": [{"name": "s", "datatype": "BYTES", "shape": [1], **EIGHT_BYTES}], "parameters": TEXT},
        b"\xff" * 8,
        "which end within element 0 of 1",
    ),
    "a name of 10 MB": ({"inputs": [{**X, "name": "x" * (10 * MB), "data": [1]}]}, b"", "is not an input of"),
    "a signature of 10 MB": (
        {"inputs": [{**X, "data": [1]}], "parameters": {"signature_name": "x" * (10 * MB)}},
        b"",
        "not found in model",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("document", "data", "message"), LIES.values(), ids=LIES)
def test_lies(server: AttackedServer, document: dict[str, Any], data: bytes, message: str) -> None:
    """Sent: declarations that don't fit the data, 8 times at once. Allowed: 400 with the tensor, short, and 300 MB."""
    with HonestCallers(server) as others, server.growing_at_most(300), ThreadPoolExecutor(CALLS) as callers:
        answers = list(callers.map(lambda _: post(server, document, data), range(CALLS)))
    for status, error in answers:
        assert (400, True) == (status, message in error), error[:1000]
        assert len(error) < 1000
    others.assert_served()


def test_many_empty_strings(server: AttackedServer) -> None:
    """Sent: 10 million empty strings in 40 MB, 8 times at once. Allowed: 429 with the flag, and 800 MB."""
    document = {
        "inputs": [{"name": "s", "datatype": "BYTES", "shape": [10 * MB], **FORTY_MB}],
        "parameters": TEXT,
    }
    with HonestCallers(server) as others, server.growing_at_most(800), ThreadPoolExecutor(CALLS) as callers:
        answers = list(callers.map(lambda _: post(server, document, bytes(40 * MB)), range(CALLS)))
    assert all(status == 429 and "--max_rows_per_request" in error for status, error in answers), answers
    others.assert_served()


@pytest.mark.parametrize(
    "text",
    [lambda: b'{"inputs": ' + b"[" * (100 * MB), lambda: b'{"inputs": [' + b"{}," * (30 * MB) + b"{}]}"],
    ids=["brackets", "inputs"],
)
def test_json_in_gzip(server: AttackedServer, text: Callable[[], bytes]) -> None:
    """Sent: 100 MB of JSON in gzip, 8 times at once. Allowed: errors, and as much memory as the budget."""
    body = gzip.compress(text(), 1)
    url = f"{server.url}/v2/models/{TINY}/infer"
    with HonestCallers(server) as others, server.growing_at_most(1500), ThreadPoolExecutor(CALLS) as callers:
        send = {"data": body, "headers": {"Content-Encoding": "gzip"}, "timeout": 120}
        answers = list(callers.map(lambda _: requests.post(url, **send).status_code, range(CALLS)))
    assert {400, 429} >= set(answers), answers
    others.assert_served()


def test_many_inputs_over_grpc(server: AttackedServer) -> None:
    """Sent: 1 million inputs in 2 MB. Allowed: INVALID_ARGUMENT, and 250 MB."""
    with (
        HonestCallers(server) as others,
        server.growing_at_most(250),
        grpc.insecure_channel(server.target, options=NO_LIMIT) as channel,
        pytest.raises(grpc.RpcError) as error,
    ):
        channel.unary_unary(INFER)(b"\x2a\x00" * MB, timeout=60)
    assert "INVALID_ARGUMENT" == error.value.code().name
    assert "at most 10000 are allowed" in error.value.details()
    others.assert_served()


def test_many_parameters_of_an_input_over_grpc(server: AttackedServer) -> None:
    """Sent: 1 million parameters of one input in 18 MB. Allowed: INVALID_ARGUMENT, and 500 MB."""
    request = schema.ModelInferRequest(model_name=TINY, inputs=[X], raw_input_contents=[bytes(4)])
    for number in range(1_000_000):
        request.inputs[0].parameters[f"{number:x}"].bool_param = True
    with (
        HonestCallers(server) as others,
        server.growing_at_most(500),
        grpc.insecure_channel(server.target, options=NO_LIMIT) as channel,
        pytest.raises(grpc.RpcError) as error,
    ):
        channel.unary_unary(INFER)(request.SerializeToString(), timeout=60)
    assert "INVALID_ARGUMENT" == error.value.code().name
    assert "at most 10000 are allowed" in error.value.details()
    others.assert_served()


def test_long_names_over_grpc(server: AttackedServer) -> None:
    """Sent: names of models and inputs of 10 MB. Allowed: errors, 300 MB, and no such name in metrics or log."""
    x = {"datatype": "FP32", "shape": [1]}
    raw = [np.float32(1).tobytes()]
    with (
        HonestCallers(server) as others,
        server.growing_at_most(300),
        grpc.insecure_channel(server.target, options=NO_LIMIT) as channel,
    ):
        for letter in "abcd":
            long = letter * (10 * MB)
            for model, name, code in ((long, "x", "NOT_FOUND"), (TINY, long, "INVALID_ARGUMENT")):
                request = schema.ModelInferRequest(
                    model_name=model, inputs=[{**x, "name": name}], raw_input_contents=raw
                )
                with pytest.raises(grpc.RpcError) as error:
                    channel.unary_unary(INFER)(request.SerializeToString(), timeout=60)
                assert code == error.value.code().name
    assert len(requests.get(server.url + METRICS_PATH, timeout=30).content) < 100_000
    assert server.log.stat().st_size < 100_000
    others.assert_served()
