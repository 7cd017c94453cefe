"""Detectors with masks are baked and served; the shapes in photos are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shape_models
from amqp_worker import WorkerProcess
from PIL import Image, ImageDraw
from rabbitmq import RabbitMQ
from server_process import ServerProcess
from tf1_session import loaded

from savedmodel_bakery import AmqpClient, Client, Detections
from savedmodel_bakery.answers.run_lengths import decode_mask
from savedmodel_bakery.client.goldens import read_goldens, replay
from savedmodel_bakery.exporter.bake import BakeResult, bake

RECIPE = {"size": 96, "resize": "bilinear", "antialias": True, "scale": "0..1", "channels": "RGB", "max_boxes": 4}
SHAPES = {"red": (0.1, 0.2, 0.45, 0.6), "blue": (0.4, 0.5, 0.9, 0.75)}
"""Ellipses by colour: ymin, xmin, ymax, xmax. The blue one covers a part of the red one's box, not of that itself."""

SIZES = {"wide.png": (200, 500), "high.png": (400, 150), "turned.jpg": (300, 200), "upside_down.jpg": (120, 360)}
TURNS = {"turned.jpg": (6, Image.Transpose.ROTATE_90), "upside_down.jpg": (3, Image.Transpose.ROTATE_180)}
CASES: dict[str, dict[str, Any]] = {
    "in boxes": {
        "model": "shape_models:masker",
        "source_outputs": "boxes=boxes,scores=scores,masks=masks",
        "mask_area": "box",
        "boxes": "yxyx",
        "box_unit": "fractions",
        "outputs": "probabilities",
        "crop": "letterbox",
    },
    "of prototypes": {
        "model": "shape_models:prototyper",
        "source_outputs": "boxes=output0,scores=output0,masks=output0,prototypes=output1",
        "boxes": "cxcywh",
        "box_unit": "pixels",
        "outputs": "probabilities",
        "crop": "letterbox",
    },
    "of the Object Detection API": {"model": "api", "crop": "none"},
}


def draw(size: tuple[int, int]) -> tuple[Image.Image, dict[str, np.ndarray]]:
    """Return a picture of SHAPES, and which pixels each of them covers."""
    height, width = size
    picture, masks = Image.new("RGB", (width, height), shape_models.BACKGROUND), {}
    for colour, (top, left, bottom, right) in SHAPES.items():
        mask = Image.new("1", picture.size)
        ImageDraw.Draw(mask).ellipse([left * width, top * height, right * width - 1, bottom * height - 1], fill=1)
        picture.paste({"red": "#f00", "blue": "#00f"}[colour], mask=mask)
        masks[colour] = np.array(mask)
    masks["red"] &= ~masks["blue"]
    return picture, masks


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Photos of SHAPES; JPEG files are stored turned, as their EXIF data state."""
    folder = tmp_path_factory.mktemp("photos")
    for name, size in SIZES.items():
        picture, exif = draw(size)[0], Image.Exif()
        exif[0x112], turn = TURNS.get(name, (1, None))
        (picture if turn is None else picture.transpose(turn)).save(folder / name, exif=exif, quality=98)
    return [folder / name for name in SIZES]


@pytest.fixture(scope="module", params=CASES)
def baked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, photos: list[Path]) -> BakeResult:
    folder, recipe = tmp_path_factory.mktemp("baked"), CASES[request.param]
    labels = folder / "labels.pbtxt"
    ids = (1, 2, 4) if recipe["model"] == "api" else (0, 1, 2)
    items = zip(ids, shape_models.LABELS, strict=True)
    labels.write_text("".join(f"item {{ id: {number} name: '{name}' }}\n" for number, name in items))
    if recipe["model"] == "api":
        recipe = recipe | {"model": str(folder / "saved"), "scale": None}
        shape_models.save_like_object_detection_api(folder / "saved", has_masks=True)
    values = {name: value for name, value in {**RECIPE, **recipe, "labels": str(labels)}.items() if value is not None}
    result = bake(name="shapes", out=folder / "models", recipe=values, photos=photos)
    assert ("detect", True) == (result.recipe.answers.task, result.parity.is_within)
    return result


@pytest.fixture(scope="module")
def server(baked: BakeResult, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = ("--model_name=shapes", f"--model_base_path={baked.path.parent}")
    with ServerProcess(*flags, log=tmp_path_factory.mktemp("server") / "log") as running:
        yield running


def check_masks(results: list[Detections]) -> None:
    for (name, size), result in zip(SIZES.items(), results, strict=True):
        expected = draw(size)[1]
        assert ["blue", "red"] == sorted(box.label for box in result.boxes), name
        for box in result.boxes:
            assert size == box.mask_size
            union = np.count_nonzero(box.mask | expected[box.label])
            iou = np.count_nonzero(box.mask & expected[box.label]) / union
            assert iou > 0.88, (name, box.label, iou)  # the network sees 96 pixels of up to 500


def test_masks_cover_the_shapes_over_every_protocol(
    baked: BakeResult, server: ServerProcess, broker: RabbitMQ, photos: list[Path], tmp_path: Path
) -> None:
    """In photos that are wide, high or turned by EXIF data, stretched or letterboxed; goldens agree."""
    answers = []
    with ExitStack() as stack:
        stack.enter_context(WorkerProcess(broker.url(), "--server", server.target, log=tmp_path / "log"))
        clients = [
            Client(server.target, model="shapes"),
            Client(server.url, model="shapes"),
            Client(server.target, model="shapes", transport="v2-grpc"),
            Client(server.url, model="shapes", transport="v2"),
            AmqpClient(broker.url(), model="shapes"),
        ]
        for client in map(stack.enter_context, clients):
            *good, bad = client.detect([*photos, b"?"])
            assert (False, ()) == (bad.ok, bad.boxes)
            answers.append(good)
        check_masks(answers[0])
        assert [answers[0]] * 4 == answers[1:]
        goldens = read_goldens(baked.path)
        assert 0.01 == goldens.tolerances["mask_counts"]
        for golden in goldens.requests:
            assert [] == replay(golden, clients[0], goldens.tolerances), golden.signature


def test_a_session_answers_the_same(baked: BakeResult, photos: list[Path]) -> None:
    """As in tensorflow_model_server; `pixels` has masks of the size of its array."""
    array = np.asarray(draw((96, 96))[0])
    with loaded(baked.path) as run:
        outputs = run("serving_default", [photo.read_bytes() for photo in photos])
        of_array = run("pixels", array[np.newaxis])
    assert [list(size) for size in SIZES.values()] == outputs["mask_size"].tolist()
    for size, labels, texts in zip(SIZES.values(), outputs["labels"], outputs["mask_counts"], strict=True):
        assert [b"", b""] == texts[2:].tolist()
        for label, text in zip(labels[:2], texts[:2], strict=True):
            mask, expected = decode_mask(text.decode(), size), draw(size)[1][label.decode()]
            assert np.count_nonzero(mask & expected) / np.count_nonzero(mask | expected) > 0.88
    assert [[96, 96]] == of_array["mask_size"].tolist()
    assert not [text for text in of_array["mask_counts"][0][:2] if not decode_mask(text.decode(), (96, 96)).any()]
