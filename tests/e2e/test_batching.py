"""A model with batching in its graph, on a real server: concurrent callers share runs and get their own results."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import batch_size_model
import pytest
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery import Client

CALLERS = 4
ROUNDS = 8
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a model that waits a minute for one image per caller, so that no batch has fewer."""
    base_path = tmp_path_factory.mktemp("m")
    batch_size_model.save(base_path / "1", batch_max=CALLERS, batch_timeout_us=60_000_000)
    flags = ("--model_name=m", f"--model_base_path={base_path}", "--grpc_max_threads=8")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("logs") / "log") as running:
        yield running


def picture(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 30), colour).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_callers_share_runs_and_each_gets_its_own_result(
    server: ServerProcess, transport: Literal["grpc", "rest"]
) -> None:
    """One in four is not an image and is not run; 24 images are six runs of the network, by the sizes it reports."""
    images = [*map(picture, COLOURS.values()), b"not an image"] * ROUNDS
    with (
        Client(transport=transport, model="m", port=server.port, rest_api_port=server.rest_api_port) as client,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        predictions = [
            prediction for (prediction,) in pool.map(lambda image: client.classify([image], top_k=2), images)
        ]
    assert [True, True, True, False] * ROUNDS == [prediction.ok for prediction in predictions]
    good = [prediction.top for prediction in predictions if prediction.ok]
    assert [("batch size", CALLERS)] * 3 * ROUNDS == [(first.label, first.score) for first, _ in good]
    assert [(name, 1.0) for name in COLOURS] * ROUNDS == [(second.label, second.score) for _, second in good]
