"""Rows 4 and 6: small files of 100 megapixels, alone, at once, and in calls that are cancelled."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import grpc
import numpy as np
import pytest
from attacked_server import CLASSIFIER, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT, request
from image_bombs import GRAY, RGBA, png
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

SIDE = 10_000  # 100 megapixels, the most that the graph accepts
CALLS = 8
CANCELLED_AFTER_S = 2.0
DECODING_LIMIT_S = 10.0
"""Within which the operations that were running when their calls were cancelled must have ended."""


def after_a_line_break(image: bytes) -> bytes:
    """Return base64 whose size is not found in its first bytes."""
    return b" " * 9000 + b"\n" + base64.b64encode(image)


def test_eight_large_images_at_once(classifier: AttackedServer) -> None:
    """Sent: 8 calls with an RGBA PNG of 100 megapixels each, half of them in base64, and 2 more.

    Allowed: the memory of the budget, and answers or rejections. Afterwards the memory returns to the system.
    """
    image = png(SIDE, RGBA, SIDE)
    forms = (image, after_a_line_break(image))
    messages = [request("top_k", model=CLASSIFIER, image=np.array([form], object)) for form in forms]

    def send(number: int) -> str:
        with grpc.insecure_channel(classifier.target, options=NO_LIMIT) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            try:
                response = stub.Predict(messages[number % 2], timeout=300)
            except grpc.RpcError as error:
                return error.code().name
        return f"OK {list(response.outputs['ok'].bool_val)}"

    def send_at_once(calls: int) -> Counter[str]:
        with ThreadPoolExecutor(calls) as callers:
            return Counter(callers.map(send, range(calls)))

    with HonestCallers(classifier) as others:
        with classifier.growing_at_most(1500):
            outcomes = send_at_once(CALLS)
        assert 0 < outcomes["OK [True]"]
        assert CALLS == outcomes["OK [True]"] + outcomes["RESOURCE_EXHAUSTED"], outcomes
        with classifier.growing_at_most(1500):
            assert {"OK [True]": 2} == send_at_once(2)
    others.assert_served()


def cancel_grpc(server: AttackedServer, images: list[bytes]) -> None:
    """Send calls and cancel them."""
    message = request("top_k", model=CLASSIFIER, image=np.array(images, object))
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        calls = [stub.Predict.future(message, timeout=600) for _ in range(CALLS)]
        time.sleep(CANCELLED_AFTER_S)
        for call in calls:
            call.cancel()


def close_rest(server: AttackedServer, images: list[bytes]) -> None:
    """Send requests and close their connections."""
    inputs = [{"b64": base64.b64encode(image).decode()} for image in images]
    body = json.dumps({"signature_name": "top_k", "inputs": inputs}).encode()
    head = f"POST /v1/models/{CLASSIFIER}:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(CALLS):
            address = ("127.0.0.1", server.rest_api_port)
            connection = stack.enter_context(closing(socket.create_connection(address, CANCELLED_AFTER_S)))
            with suppress(TimeoutError):  # the server reads no more than it has memory for
                connection.sendall(head.encode() + body)
        time.sleep(CANCELLED_AFTER_S)


def close_photos(server: AttackedServer, images: list[bytes]) -> None:
    """Send forms to `/photos` and close their connections."""
    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'
    body = b"".join(head + image + b"\r\n" for image in images) + b"--b--\r\n"
    headers = f"Host: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(body)}\r\n\r\n"
    request = f"POST /photos/{CLASSIFIER} HTTP/1.1\r\n{headers}".encode() + body
    with ExitStack() as stack:
        for _ in range(CALLS):
            address = ("127.0.0.1", server.rest_api_port)
            connection = stack.enter_context(closing(socket.create_connection(address, 60)))
            connection.sendall(request)
        time.sleep(CANCELLED_AFTER_S)


@pytest.mark.parametrize("send", [cancel_grpc, close_rest, close_photos])
def test_cancelled_calls_end(classifier: AttackedServer, send: Callable[[AttackedServer, list[bytes]], None]) -> None:
    """Sent: 8 calls with 1000 PNGs of 100 megapixels each, cancelled after 2 s.

    Allowed: as much memory as the budget. Health checks and tiny calls are answered, also meanwhile, and the work ends.
    """
    with classifier.growing_at_most(1500):
        with HonestCallers(classifier) as others:
            send(classifier, [png(SIDE, GRAY, SIDE, bits=1)] * 1000)
            others.wait_for_round()
        wait_until(classifier.is_idle, timeout_s=DECODING_LIMIT_S, interval_s=0)
    others.assert_served()
