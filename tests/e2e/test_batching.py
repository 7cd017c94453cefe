"""A model that batches in its graph, behind a real server: callers share runs, and nobody suffers from another."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
import telling
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery.client import Client

CALLERS = 4
ROUNDS = 10
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """It serves a model that waits a minute for as many images as there are callers, so that no batch has fewer."""
    base_path = tmp_path_factory.mktemp("telling")
    telling.save(base_path / "1", batch_max=CALLERS, batch_timeout_us=60_000_000)
    flags = ("--model_name=telling", f"--model_base_path={base_path}", "--grpc_max_threads=8")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("logs") / "log") as running:
        yield running


def picture(colour: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 30), colour).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_callers_share_runs_and_each_hears_of_his_own_image(
    server: ServerProcess, transport: Literal["grpc", "rest"]
) -> None:
    """Of each four images one is none; forty requests are ten runs of the network, by what it says itself."""
    sent = [*map(picture, COLOURS.values()), b"no image"] * ROUNDS
    with (
        Client(transport=transport, model="telling", port=server.port, rest_api_port=server.rest_api_port) as client,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        found = [answer for (answer,) in pool.map(lambda image: client.classify_images([image], top_k=2), sent)]
    assert [True, True, True, False] * ROUNDS == [answer.ok for answer in found]
    good = [answer.top for answer in found if answer.ok]
    assert [("together", CALLERS)] * 3 * ROUNDS == [(first.label, first.score) for first, _ in good]
    assert [(name, 1.0) for name in COLOURS] * ROUNDS == [(second.label, second.score) for _, second in good]
