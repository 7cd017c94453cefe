"""Rows 7, 8 and 10: messages that grow: brackets, gzip, bodies and headers without end, and long names."""

from __future__ import annotations

import gzip
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import grpc
import numpy as np
import pytest
import requests
from attacked_server import MB, METRICS_PATH, TINY, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT, request
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

CALLS = 8
PREDICT = "/tensorflow.serving.PredictionService/Predict"
# In a process of its own, because compressing them would delay the other callers in this process.
ZEROS = """
import sys
import grpc
with grpc.insecure_channel(sys.argv[1], options=[("grpc.max_send_message_length", -1)]) as channel:
    try:
        channel.unary_unary(sys.argv[2])(bytes(500_000_000), timeout=50, compression=grpc.Compression.Gzip)
    except grpc.RpcError as error:
        print(error.code().name, error.details(), sep="\\n")
"""


def post(server: AttackedServer, body: bytes, **headers: str) -> tuple[int, str]:
    """Return the status and the error of a predict request."""
    response = requests.post(f"{server.url}/v1/models/{TINY}:predict", data=body, headers=headers, timeout=60)
    return response.status_code, response.json()["error"]


def test_brackets_in_gzip(server: AttackedServer) -> None:
    """Sent: 100 MB of `[` in 102 kB of gzip, 8 times at once. Allowed: errors, and as much memory as the budget."""
    body = gzip.compress(b"[" * (100 * MB))
    with HonestCallers(server) as others, server.growing_at_most(1500), ThreadPoolExecutor(CALLS) as callers:
        answers = list(callers.map(lambda _: post(server, body, **{"Content-Encoding": "gzip"}), range(CALLS)))
    assert {400, 429} >= {status for status, _ in answers}, answers
    others.assert_served()


def test_brackets(server: AttackedServer) -> None:
    """Sent: 5 MB of `[` in an object. Allowed: 400 with the limit, and 200 MB."""
    with HonestCallers(server) as others, server.growing_at_most(200):
        status, error = post(server, b'{"instances": ' + b"[" * (5 * MB))
    assert (400, "the request nests more than 1000 JSON arrays and objects") == (status, error)
    others.assert_served()


def test_zeros_in_gzip_over_grpc(server: AttackedServer) -> None:
    """Sent: 500 MB of zeros in 0.5 MB of gzip. Allowed: RESOURCE_EXHAUSTED with the flag, and 300 MB."""
    command = [sys.executable, "-c", ZEROS, server.target, PREDICT]
    with HonestCallers(server) as others, server.growing_at_most(300):
        sent = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    code, text = sent.stdout.splitlines()
    assert ("RESOURCE_EXHAUSTED", True) == (code, "--max_unpacked_bytes" in text), text
    others.assert_served()


def test_a_string_that_fills_up_a_shape(server: AttackedServer) -> None:
    """Sent: one string of 1 MB for a shape of 10,000 strings, in 1 kB of gzip. Allowed: RESOURCE_EXHAUSTED, 100 MB."""
    message = request("text")
    message.inputs["s"].dtype = types_pb2.DT_STRING
    message.inputs["s"].string_val.append(bytes(MB))
    message.inputs["s"].tensor_shape.dim.add(size=10_000)
    with HonestCallers(server) as others, server.growing_at_most(100), grpc.insecure_channel(server.target) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.Predict(message, timeout=60, compression=grpc.Compression.Gzip)
        assert "RESOURCE_EXHAUSTED" == error.value.code().name
    others.assert_served()


HEAD = f"POST /v1/models/{TINY}:predict HTTP/1.1\r\nHost: x\r\n".encode()


def endless_body() -> Iterator[bytes]:
    """A body in chunks, without its last chunk: 3 GB."""
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n" % MB + bytes(MB) + b"\r\n"
    for _ in range(3000):
        yield chunk


def endless_headers() -> Iterator[bytes]:
    """Headers of 64 MB, without their end."""
    yield HEAD
    for number in range(640):
        yield f"x-{number}: ".encode() + b"x" * 100_000 + b"\r\n"


def endless_header() -> Iterator[bytes]:
    """A header of 64 MB, without its end."""
    yield HEAD + b"x: "
    for _ in range(640):
        yield b"x" * 100_000


def endless_target() -> Iterator[bytes]:
    """A request line of 64 MB, without its end."""
    yield b"GET /"
    for _ in range(640):
        yield b"x" * 100_000


@pytest.mark.parametrize(
    ("send", "grows_mb"), [(endless_body, 1500), (endless_headers, 50), (endless_header, 50), (endless_target, 50)]
)
def test_endless_requests(server: AttackedServer, send: object, grows_mb: float) -> None:
    """Sent: a request without end, at most 3 GB of it. Allowed: the server closes the connection.

    The memory is limited by the budget for the body, and by --max_header_bytes for the headers.
    """
    with (
        HonestCallers(server) as others,
        server.growing_at_most(grows_mb),
        closing(socket.create_connection(("127.0.0.1", server.rest_api_port), 30)) as connection,
    ):
        with suppress(ConnectionError):
            for part in send():  # type: ignore[operator]
                connection.sendall(part)
        with suppress(ConnectionError):
            while connection.recv(65536):  # until the server closes the connection
                pass
    others.assert_served()


def test_unknown_models_with_long_names(server: AttackedServer) -> None:
    """Sent: 8 calls of models with names of 10 MB. Allowed: NOT_FOUND, 300 MB, and no such name in metrics or log."""
    with (
        HonestCallers(server) as others,
        server.growing_at_most(300),
        grpc.insecure_channel(server.target, options=NO_LIMIT) as channel,
    ):
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for letter in "abcdefgh":
            with pytest.raises(grpc.RpcError) as error:
                stub.Predict(request(model=letter * (10 * MB), x=np.float32([1])), timeout=30)
            assert "NOT_FOUND" == error.value.code().name
    assert len(requests.get(server.url + METRICS_PATH, timeout=30).content) < 100_000
    assert server.log.stat().st_size < 100_000
    others.assert_served()
