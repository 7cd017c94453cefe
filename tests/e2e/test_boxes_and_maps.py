"""Detectors and segmenters are baked and served; the places of shapes in photos are known."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shape_models
from PIL import Image

from savedmodel_bakery import Client
from savedmodel_bakery.client.goldens import read_goldens, replay
from savedmodel_bakery.errors import ParityError
from savedmodel_bakery.exporter.bake import BakeResult, bake

Clients = Callable[[Path], list[Client]]
AskAmqp = Callable[[Path, bytes], dict[str, Any]]
RECIPE = {"size": 96, "resize": "bilinear", "antialias": True, "scale": "0..1", "channels": "RGB"}
DETECTOR = {"model": "shape_models:detector", "outputs": "probabilities", "boxes": "yxyx", "box_unit": "fractions"}
SHAPES = {"red": (0.1, 0.2, 0.3, 0.6), "blue": (0.5, 0.5, 0.9, 0.75)}
EXIF_TURN = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
SIZES = {"wide.png": (200, 500), "high.png": (400, 150), "turned.jpg": (300, 200), "upside_down.jpg": (120, 360)}
ORIENTATIONS = {"turned.jpg": 6, "upside_down.jpg": 3}


def photo_files(folder: Path) -> list[Path]:
    """Write photos of SHAPES; JPEG files are stored turned, as their EXIF data tell."""
    for name, size in SIZES.items():
        picture, exif = shape_models.draw(size, SHAPES), Image.Exif()
        orientation = ORIENTATIONS.get(name, 1)
        turn = EXIF_TURN[orientation]
        exif[0x112] = orientation
        (picture if turn is None else picture.transpose(turn)).save(folder / name, exif=exif, quality=98)
    return [folder / name for name in SIZES]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return photo_files(tmp_path_factory.mktemp("photos"))


def bake_shapes(folder: Path, photos: list[Path], **recipe: Any) -> BakeResult:
    (folder / "names.txt").write_text("\n".join(shape_models.LABELS) + "\n")
    labels = {"labels": str(folder / "names.txt")}
    result = bake(name="shapes", out=folder / "models", recipe={**RECIPE, **labels, **recipe}, photos=photos)
    assert result.parity.is_within
    return result


def test_boxes_in_another_unit_are_rejected(tmp_path: Path, photos: list[Path]) -> None:
    with pytest.raises(ParityError, match=r"box_unit is pixels, .* on all 4 photos .*; bake with box_unit f"):
        bake_shapes(tmp_path, photos, **DETECTOR | {"box_unit": "pixels", "crop": "none"})
    assert [] == list((tmp_path / "models").glob("*/*"))


def ask(clients: Clients, result: BakeResult, photos: list[Path]) -> dict[str, np.ndarray]:
    """Send photos and bytes that are no image over gRPC and REST, and replay the goldens; return the outputs."""
    images = np.array([*(photo.read_bytes() for photo in photos), b"?"], object)
    answers = []
    for client in clients(result.path.parent):
        goldens = read_goldens(result.path)
        assert len(goldens.requests) >= 3 + len(photos)
        for golden in goldens.requests:
            assert [] == replay(golden, client, goldens.tolerances), golden.signature
        answers.append(client.predict({"image": images}).arrays)
    over_grpc, over_rest = answers
    for alias, array in over_grpc.items():
        np.testing.assert_array_equal(array, over_rest[alias])
        assert not any(array[-1:].reshape(-1).tolist()) or alias == "error"
    assert [True] * len(photos) + [False] == over_grpc["ok"].tolist()
    return dict(over_grpc)


def check_boxes(outputs: dict[str, np.ndarray], pixels: float = 1.0) -> None:
    """Check that each photo has its shapes, within pixels of the network's input."""
    for row, (height, width) in enumerate(SIZES.values()):
        assert [b"blue", b"red"] == sorted(outputs["labels"][row][:2])
        assert (2, b"") == (outputs["count"][row], outputs["labels"][row][2])
        assert [0.9, 0.9, 0] == pytest.approx(outputs["scores"][row][:3].tolist())
        for label, box in zip(outputs["labels"][row][:2], outputs["boxes"][row], strict=False):
            expected = np.array(SHAPES[label.decode()]) * [height, width, height, width]
            allowed = pixels * np.maximum(height, width) / 96  # a letterbox makes both sides smaller by that
            assert np.abs(box - expected).max() <= allowed + 1e-3


@pytest.fixture(scope="module", params=[pytest.param("none", marks=pytest.mark.slow), "letterbox"])
def detector(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, photos: list[Path]
) -> BakeResult:
    folder = tmp_path_factory.mktemp("detector")
    result = bake_shapes(folder, photos, **DETECTOR, crop=request.param, max_boxes=4)
    assert "detect" == result.recipe.answers.task
    return result


def test_boxes_lie_where_the_shapes_are(detector: BakeResult, clients: Clients, photos: list[Path]) -> None:
    """In photos that are wide, high or turned by EXIF data, stretched and letterboxed."""
    check_boxes(ask(clients, detector, photos))


def test_boxes_over_amqp(detector: BakeResult, ask_amqp: AskAmqp, photos: list[Path]) -> None:
    row = ask_amqp(detector.path.parent, photos[0].read_bytes())
    assert (["blue", "red", "", ""], 2) == (sorted(row["labels"][:2]) + row["labels"][2:], row["count"])
    assert [[0.0] * 4] * 2 == row["boxes"][2:]


def test_boxes_are_objects(detector: BakeResult, clients: Clients, photos: list[Path]) -> None:
    """Those of an array of the network's size are in its pixels."""
    array = np.asarray(shape_models.draw((96, 96), SHAPES))
    for client in clients(detector.path.parent):
        wide, bad, of_array = client.detect([photos[0], b"?", array])
        for result, size, allowed in ((wide, SIZES["wide.png"], 500 / 96), (of_array, (96, 96), 1)):
            assert ["blue", "red"] == sorted(box.label for box in result.boxes)
            for box in result.boxes:
                edges = (box.ymin, box.xmin, box.ymax, box.xmax)
                assert edges == pytest.approx(np.array(SHAPES[box.label]) * [*size, *size], abs=allowed)
        assert (False, ()) == (bad.ok, bad.boxes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"batch_max": 4}, {"optimise": "none", "decode": "fast"}, {"rows_per_run": 2}],
    ids=["batching", "fast decoding", "runs of two"],
)
def test_detectors_have_the_options_of_classifiers(
    clients: Clients, photos: list[Path], tmp_path: Path, options: dict[str, Any]
) -> None:
    result = bake_shapes(tmp_path, photos, **DETECTOR, crop="none", **options)
    check_boxes(ask(clients, result, photos))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["", "hub:"], ids=["SavedModel", "TF Hub"])
def test_a_model_of_the_object_detection_api(clients: Clients, photos: list[Path], tmp_path: Path, source: str) -> None:
    """It takes one image of uint8. Its ids start at 1 and have a gap."""
    shape_models.save_like_object_detection_api(tmp_path / "saved")
    (tmp_path / "map.pbtxt").write_text(
        "".join(f"item {{ id: {number} name: '{name}' }}\n" for number, name in ((1, "red"), (2, "green"), (4, "blue")))
    )
    labels = {"model": f"{source}{tmp_path / 'saved'}", "labels": str(tmp_path / "map.pbtxt")}
    result = bake_shapes(tmp_path, photos, **labels, crop="letterbox", scale=None)
    answers, boxes = result.recipe.answers, result.recipe.boxes
    assert ("detect", "tf-object-detection") == (answers.task, boxes.boxes)
    outputs = ask(clients, result, photos)
    assert (len(photos) + 1, 100, 4) == outputs["boxes"].shape
    check_boxes(outputs)


@pytest.fixture(scope="module", params=[pytest.param("none", marks=pytest.mark.slow), "letterbox"])
def segmenter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, photos: list[Path]
) -> BakeResult:
    folder = tmp_path_factory.mktemp("segmenter")
    (folder / "four.txt").write_text("background\nred\ngreen\nblue\n")
    recipe = {"model": "shape_models:segmenter", "task": "segment", "labels": str(folder / "four.txt")}
    return bake_shapes(folder, photos, **recipe, crop=request.param)


def test_maps_have_the_size_of_the_photo(segmenter: BakeResult, clients: Clients, photos: list[Path]) -> None:
    outputs = ask(clients, segmenter, photos)
    for row, (height, width) in enumerate(SIZES.values()):
        with Image.open(io.BytesIO(outputs["map_png_bytes"][row])) as picture:
            class_map = np.asarray(picture)
        expected = np.zeros((height, width), np.uint8)
        for class_id, label in ((1, "red"), (3, "blue")):
            top, left, bottom, right = (
                round(edge * side) for edge, side in zip(SHAPES[label], (height, width) * 2, strict=True)
            )
            expected[top:bottom, left:right] = class_id
        assert expected.shape == class_map.shape
        assert np.mean(class_map == expected) > 0.96  # but for edges of the shapes
        shares = np.bincount(expected.reshape(-1), minlength=4) / expected.size
        assert shares.tolist() == pytest.approx(outputs["shares"][row].tolist(), abs=0.03)
        assert [b"background", b"red", b"green", b"blue"] == outputs["labels"][row].tolist()


def test_a_map_has_the_class_of_each_pixel(segmenter: BakeResult, clients: Clients, photos: list[Path]) -> None:
    for client in clients(segmenter.path.parent):
        good, bad = client.segment((photos[0], b"?"))
        assert SIZES["wide.png"] == good.map.shape
        assert ("background", "red", "green", "blue") == good.labels == tuple(good.shares)
        counts = np.bincount(good.map.reshape(-1), minlength=4)
        assert (counts / good.map.size).tolist() == pytest.approx(list(good.shares.values()))
        assert (False, {}) == (bad.ok, bad.shares)


def test_a_photo_too_wide_for_a_png_file_harms_no_other(
    segmenter: BakeResult, clients: Clients, photos: list[Path]
) -> None:
    file = io.BytesIO()
    Image.new("RGB", (70_000, 1)).save(file, "PNG")
    good, wide = clients(segmenter.path.parent)[0].segment([photos[0], file.getvalue()])
    assert good.ok
    error = "too large: its header states 70000 by 1 pixels; the longest side can have 65535"
    assert (False, error) == (wide.ok, wide.error)


def test_maps_over_amqp(segmenter: BakeResult, ask_amqp: AskAmqp, photos: list[Path]) -> None:
    row = ask_amqp(segmenter.path.parent, photos[0].read_bytes())
    assert {"map_png_bytes", "shares", "labels", "ok", "error"} == row.keys()
    assert 1 == pytest.approx(sum(row["shares"]))
