"""A model of every task gives the same typed results over gRPC, REST and a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shape_models
from amqp_worker import WorkerProcess
from rabbitmq import RabbitMQ
from server_process import ServerProcess

from savedmodel_bakery.client import AmqpClient, Client
from savedmodel_bakery.exporter.bake import bake

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SHAPES = {"red": (0.0, 0.0, 1.0, 0.75), "green": (0.0, 0.75, 0.5, 1.0)}
RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
COLOURS = {"labels": "colours.txt", "outputs": "probabilities"}
BOXES = {"size": 96, "boxes": "yxyx", "box_unit": "fractions"}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "classify": ("classifier", COLOURS),
    "binary": ("decider", {"labels": "two.txt", "outputs": "probabilities"}),
    "multilabel": ("tagger", COLOURS),
    "embed": ("tagger", {"task": "embed", "layer": "mean"}),
    "regress": ("meter", {"task": "regress", "output_names": "red,green"}),
    "detect": ("detector", COLOURS | BOXES),
    "segment": ("segmenter", {"task": "segment", "size": 96, "labels": "four.txt"}),
}


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three quarters are red, one eighth is green, and one is dark."""
    path = tmp_path_factory.mktemp("photo") / "photo.png"
    shape_models.draw((40, 80), SHAPES).save(path)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, photo: Path) -> Iterator[ServerProcess]:
    """A server with a model per task, named as the task."""
    folder = tmp_path_factory.mktemp("models")
    labels = {"colours.txt": shape_models.LABELS, "two.txt": ("red", "green")}
    labels["four.txt"] = ("background", *shape_models.LABELS)
    for name, names in labels.items():
        (folder / name).write_text("\n".join(names) + "\n")
    configs = []
    for task, (model, values) in TASKS.items():
        paths = {"labels": str(folder / values["labels"])} if "labels" in values else {}
        recipe = {**RECIPE, **values, **paths}
        result = bake(model=f"shape_models:{model}", name=task, out=folder, recipe=recipe, photos=[photo])
        assert task == result.recipe.answers.task
        assert result.parity.is_within
        configs.append(f'config {{ name: "{task}" base_path: "{folder / task}" model_platform: "tensorflow" }}')
    config = folder / "models.config"
    config.write_text(f"model_config_list {{ {' '.join(configs)} }}")
    with ServerProcess(f"--model_config_file={config}", log=folder / "server.log") as server:
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
            assert np.array(SHAPES[box.label]) * [40, 80, 40, 80] == pytest.approx(edges, abs=1)
    for client in clients("segment"):
        good, bad = client.segment(images)
        assert not bad.ok
        assert (40, 80) == good.map.shape
        expected = {"background": 0.125, "red": 0.75, "green": 0.125, "blue": 0.0}
        assert expected == pytest.approx(good.shares, abs=0.02)
