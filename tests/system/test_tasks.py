"""A model of every task gives the same typed results over gRPC, REST and a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from amqp_worker import WorkerProcess
from baked_tasks import HEIGHT, SHAPES, WIDTH
from rabbitmq import RabbitMQ
from server_process import ServerProcess

from savedmodel_bakery import AmqpClient, Client

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


@pytest.fixture(scope="module")
def photo(task_models: Path) -> Path:
    return task_models.parent / "photo.png"


@pytest.fixture(scope="module")
def server(task_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a model per task, named as the task."""
    log = tmp_path_factory.mktemp("tasks") / "server.log"
    with ServerProcess(f"--model_config_file={task_models}", log=log) as server:
        yield server


@pytest.fixture
def clients(
    broker: RabbitMQ, server: ServerProcess, tmp_path: Path
) -> Iterator[Callable[[str], list[Client | AmqpClient]]]:
    """Return a client of a model per transport."""
    opened: list[Client | AmqpClient] = []

    def connect(model: str) -> list[Client | AmqpClient]:
        new = [
            Client(server.target, model=model),
            Client(server.url, model=model),
            AmqpClient(broker.url(), model=model),
        ]
        opened.extend(new)
        return new

    with WorkerProcess(broker.url(), "--server", server.target, log=tmp_path / "log"):
        yield connect
        for client in opened:
            client.close()


def test_every_transport_returns_the_same_results(
    clients: Callable[[str], list[Client | AmqpClient]], photo: Path
) -> None:
    images = [photo, b"?"]
    for client in clients("classify"):
        good, bad = client.classify(images)
        assert ("red", True, False) == (good.label, good.ok, bad.ok)
    for client in clients("binary"):
        good, bad = client.classify(images)
        assert ("red", False) == (good.label, bad.ok)
        assert [0.924, 0.076] == pytest.approx([each.score for each in good.top], abs=0.02)
    for client in clients("multilabel"):
        good, bad = client.tags(images)
        assert (["red"], False) == ([tag.label for tag in good.tags], bad.ok)
    for client in clients("embed"):
        good, bad = client.embed(images)
        assert [0.77, 0.15, 0.02] == pytest.approx(good.vector.tolist(), abs=0.02)
        assert not bad.ok
    for client in clients("regress"):
        good, bad = client.regress(images)
        assert {"red": pytest.approx(197, abs=5), "green": pytest.approx(38, abs=5)} == good.values
        assert not bad.ok
    for client in clients("detect"):
        good, bad = client.detect(images)
        assert not bad.ok
        assert ["green", "red"] == sorted(box.label for box in good.boxes)
        for box in good.boxes:
            edges = [box.ymin, box.xmin, box.ymax, box.xmax]
            assert np.array(SHAPES[box.label]) * [HEIGHT, WIDTH, HEIGHT, WIDTH] == pytest.approx(edges, abs=1)
            area = {"red": HEIGHT * WIDTH * 3 / 4, "green": HEIGHT * WIDTH / 8}[box.label]
            assert (HEIGHT, WIDTH) == box.mask.shape
            assert area == pytest.approx(np.count_nonzero(box.mask), rel=0.1)
    for client in clients("keypoints"):
        good, bad = client.keypoints(images)
        assert not bad.ok
        red, green, _ = good.points
        assert [20, 30, 10, 70] == pytest.approx([red.y, red.x, green.y, green.x], abs=1)
    for client in clients("heads"):
        good, bad = client.answer(images)
        assert ("red", pytest.approx(197, abs=5)) == (good.colour.label, good.redness.values["value"])
        assert (False, False) == (bad.ok, bad.colour.ok)
    for client in clients("segment"):
        good, bad = client.segment(images)
        assert not bad.ok
        assert (HEIGHT, WIDTH) == good.map.shape
        expected = {"background": 0.125, "red": 0.75, "green": 0.125, "blue": 0.0}
        assert expected == pytest.approx(good.shares, abs=0.02)
