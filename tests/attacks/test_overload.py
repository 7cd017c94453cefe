"""Row 5: more than the server can do. The excess is rejected, and the rest answered in time."""

from __future__ import annotations

import base64
import io
import json
import socket
import time
from collections import Counter
from contextlib import ExitStack

import grpc
import numpy as np
import pytest
import requests
from attacked_server import CLASSIFIER, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT, request
from PIL import Image
from tensorflow_serving.apis import prediction_service_pb2_grpc
from waiting import wait_until

from savedmodel_bakery.exporter import resources

RATE_PER_S = 100
SECONDS = 6.0
DEADLINE_S = 2.0
READERS = 24


@pytest.fixture(scope="module")
def photo() -> bytes:
    """A JPEG photo of 12 megapixels."""
    file = io.BytesIO()
    with Image.open(resources.folder("examples") / "rocket.jpg") as opened:
        opened.convert("RGB").resize((4000, 3000)).save(file, "JPEG", quality=95)
    return file.getvalue()


def offer(server: AttackedServer, photo: bytes) -> Counter[str]:
    """Send photos at a fixed rate, whether they are answered or not; return the number of each status."""
    message = request("top_k", model=CLASSIFIER, image=np.array([photo], object))
    with grpc.insecure_channel(server.target, options=NO_LIMIT) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        started, calls = time.monotonic(), []
        for number in range(int(RATE_PER_S * SECONDS)):
            time.sleep(max(0.0, started + number / RATE_PER_S - time.monotonic()))
            calls.append(stub.Predict.future(message, timeout=DEADLINE_S))
        return Counter(call.code().name for call in calls)


def test_several_times_the_capacity(classifier: AttackedServer, photo: bytes) -> None:
    """Sent: 100 photos of 12 megapixels per second with a deadline of 2 s, for 6 s, twice.

    Allowed: as much memory as the budget, which returns afterwards. Most of the excess is rejected as such, some calls
    are answered, and every health check is.
    """
    for _ in range(2):
        with HonestCallers(classifier, predict=False) as others, classifier.growing_at_most(1500):
            codes = offer(classifier, photo)
        print(codes)
        assert {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"} >= codes.keys()
        assert 0 < codes["OK"]
        assert codes["DEADLINE_EXCEEDED"] < codes["RESOURCE_EXHAUSTED"], codes
        others.assert_served()


def predict_body(signature: str, count: int) -> bytes:
    """Return the body of a REST request with a small photo, several times."""
    photo = base64.b64encode((resources.folder("examples") / "rocket.jpg").read_bytes()).decode()
    return json.dumps({"signature_name": signature, "instances": [{"b64": photo}] * count}).encode()


def test_answers_that_nobody_reads(classifier: AttackedServer) -> None:
    """Sent: 24 requests for the pixels of 8 photos, whose answers of 24 MB nobody reads.

    Allowed: as much memory as the budget. A photo of another caller is answered within 20 s, also by a second try.
    """
    path, attack = f"/v1/models/{CLASSIFIER}:predict", predict_body("preprocess", 8)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(attack)}\r\n\r\n".encode()
    photo = predict_body("serving_default", 1)
    with HonestCallers(classifier, predict=False) as others, classifier.growing_at_most(1500), ExitStack() as stack:
        for _ in range(READERS):
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", classifier.rest_api_port))
            reader.sendall(head + attack)
        others.wait_for_round()
        wait_until(lambda: requests.post(classifier.url + path, photo, timeout=20).ok, timeout_s=20)
    others.assert_served()
