"""Row 5: more photos than the server can classify. The excess is rejected, and the rest answered in time."""

from __future__ import annotations

import io
import time
from collections import Counter

import grpc
import numpy as np
import pytest
from attacked_server import CLASSIFIER, AttackedServer, HonestCallers
from grpc_calls import NO_LIMIT, request
from PIL import Image
from tensorflow_serving.apis import prediction_service_pb2_grpc

from savedmodel_bakery.exporter import resources

RATE_PER_S = 100
SECONDS = 6.0
DEADLINE_S = 2.0


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
