"""Misbehaving and numerous callers get errors, delay no one else, and leave no resources behind."""

from __future__ import annotations

import json
import resource
import socket
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import model_makers
import numpy as np
import requests
import tensorflow as tf
from server_process import ServerProcess
from tensorflow_serving.apis import predict_pb2

PATH = "/tensorflow.serving.PredictionService/Predict"
CONNECTIONS = 1000
CALLERS = 16


def connect(server: ServerProcess, *, receive_bytes: int | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.rest_api_port), 60)
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return connection


def post(body: bytes) -> bytes:
    head = f"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def request(model: str, signature: str = "", **inputs: object) -> bytes:
    message = predict_pb2.PredictRequest()
    message.model_spec.name, message.model_spec.signature_name = model, signature
    for alias, value in inputs.items():
        message.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return message.SerializeToString()


def predict(server: ServerProcess) -> object:
    url = f"{server.url}/v1/models/half_plus_two:predict"
    return requests.post(url, json={"instances": [2.0]}, timeout=10).json()


RESPONSE = {"predictions": [4.0]}


def test_callers_that_stop_reading_delay_no_one(server: ServerProcess) -> None:
    body = json.dumps({"signature_name": "text", "inputs": ["x" * 1000] * 2000}).encode()
    with ExitStack() as stack:
        for _ in range(CALLERS):
            connection = stack.enter_context(closing(connect(server, receive_bytes=4096)))
            connection.sendall(post(body))
        assert RESPONSE == predict(server)


def test_slow_request_bodies_delay_no_one_and_are_answered(server: ServerProcess) -> None:
    whole = post(b'{"instances": [2.0]}')
    with ExitStack() as stack:
        slow = [stack.enter_context(closing(connect(server))) for _ in range(CALLERS)]
        for connection in slow:
            connection.sendall(whole[:-5])
        assert RESPONSE == predict(server)
        for connection in slow:
            connection.sendall(whole[-5:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 OK")


def test_a_thousand_open_connections_are_answered(tmp_path: Path) -> None:
    """Within a deadline that leaves time for all of them on a busy machine; calls that can't meet it are rejected."""
    model_makers.half_plus(tmp_path / "half_plus_two", 1)
    flags = ("--model_name=half_plus_two", f"--model_base_path={tmp_path / 'half_plus_two'}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * CONNECTIONS), hard))
    try:
        with (
            ServerProcess(*flags, "--rest_api_timeout_in_ms=600000", log=tmp_path / "log") as server,
            ExitStack() as stack,
        ):
            opened = [stack.enter_context(closing(connect(server))) for _ in range(CONNECTIONS)]
            for connection in opened:
                connection.sendall(post(b'{"instances": [2.0]}'))
            assert {b"HTTP/1.1 200 OK"} == {connection.recv(65536)[:15] for connection in opened}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resources(server: ServerProcess) -> tuple[int, int]:
    """Return the number of threads and open files of the server's process."""
    process = Path("/proc", str(server.process.pid))
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return int(status["Threads"]), len(list((process / "fd").iterdir()))


def test_thousands_of_valid_and_invalid_calls_leak_neither_threads_nor_files(server: ServerProcess) -> None:
    calls = [
        request("half_plus_two", x=np.float32([1])),
        request("half_plus_two", z=np.float32([1])),
        request("half_plus_two", "two", a=np.float32([1, 2]), b=np.float32([1, 2, 3])),
        b"\xff\xff\xff",
    ]
    codes = []
    with requests.Session() as session, grpc.insecure_channel(server.target) as channel:
        call = channel.unary_unary(PATH)

        def send_all(times: int) -> None:
            for _ in range(times):
                for message in calls:
                    try:
                        call(message, timeout=30)
                    except grpc.RpcError as error:
                        codes.append(error.code().name)
                for body in (b'{"instances": [1.0]}', b'{"instances": ['):
                    session.post(f"{server.url}/v1/models/half_plus_two:predict", data=body, timeout=30)

        send_all(50)  # starts all threads
        before = resources(server)
        send_all(400)
        after = resources(server)
    assert {"INVALID_ARGUMENT": 900, "INTERNAL": 450} == {code: codes.count(code) for code in set(codes)}
    assert after[0] <= before[0] + 4
    assert after[1] <= before[1] + 4
