"""The example pipelines are composed and served; their answers are known."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pipeline_steps
import pytest
import requests
import shape_models
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery import Client, LocalTransport
from savedmodel_bakery.client.goldens import read_goldens, replay
from savedmodel_bakery.exporter.pipeline.check import check_pipeline
from savedmodel_bakery.exporter.pipeline.compose import compose
from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SHAPES = {"red": (0.1, 0.2, 0.3, 0.6), "blue": (0.5, 0.5, 0.9, 0.75)}


def photo(size: tuple[int, int], shapes: dict[str, Any], orientation: int = 1) -> bytes:
    """Draw shapes; with orientation 6, the file is stored turned, as its EXIF data say."""
    picture, exif, file = shape_models.draw(size, shapes), Image.Exif(), io.BytesIO()
    exif[0x112] = orientation
    picture = picture.transpose(Image.Transpose.ROTATE_90) if orientation == 6 else picture
    picture.save(file, "JPEG", exif=exif, quality=98)
    return file.getvalue()


PHOTOS = {
    "two shapes": photo((200, 400), SHAPES),
    "turned": photo((300, 200), {"green": (0.2, 0.2, 0.5, 0.5)}, orientation=6),
    "none": photo((100, 100), {}),
}


def compose_example(photos: Sequence[Path] | None = None) -> Path:
    (file,) = Path().glob("*.toml")
    checked = check_pipeline(read_pipeline_file(file))
    path, _ = compose(checked, base_path=Path("saved_model", checked.pipeline.name), photos=photos)
    return path.resolve()


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The composed version of each example."""
    folder, composed = tmp_path_factory.mktemp("pipelines"), {}
    for number, content in enumerate(PHOTOS.values()):
        (folder / f"{number}.jpg").write_bytes(content)
    photos = sorted(folder.glob("*.jpg"))
    with pipeline_steps.example("add_sub_mul", folder):
        pipeline_steps.add_sub_mul()
        composed["add_sub_mul"] = compose_example()
    with pipeline_steps.example("shape_colours", folder):
        pipeline_steps.shape_colours()
        composed["shape_colours"] = compose_example(photos)
    return composed


@pytest.fixture(scope="module")
def server(versions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("server")
    models = [
        f'config {{ name: "{name}" base_path: "{version.parent}" model_platform: "tensorflow" }}'
        for name, version in versions.items()
    ]
    (folder / "models.config").write_text(f"model_config_list {{ {' '.join(models)} }}")
    with ServerProcess(f"--model_config_file={folder / 'models.config'}", log=folder / "log") as running:
        for name in versions:
            running.wait_for_log(f"loaded servable version {{name: {name} version: 1}}")
        yield running


def ask(server: ServerProcess, model: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send rows over REST; texts that are bytes in base64."""
    url = f"{server.url}/v1/models/{model}:predict"
    response = requests.post(url, json={"instances": list(rows)}, timeout=60)
    assert response.ok, response.text
    return response.json()["predictions"]


def image(content: bytes) -> dict[str, Any]:
    return {"image": {"b64": base64.b64encode(content).decode()}}


def test_the_product_of_sum_and_difference(server: ServerProcess) -> None:
    a, b = np.float32([1, 2, 3, 4]), np.float32([4, 3, 2, 1])
    with Client(server.target, model="add_sub_mul") as client:
        assert [-15, -5, 5, 15] == client.predict({"a": a, "b": b}).arrays["product"].tolist()
    body = {"inputs": {"a": a.tolist(), "b": b.tolist()}}
    response = requests.post(f"{server.url}/v1/models/add_sub_mul:predict", json=body, timeout=60)
    assert {"outputs": [-15, -5, 5, 15]} == response.json()


def test_crops_of_photos_are_classified_and_return_to_the_rows_of_their_photos(server: ServerProcess) -> None:
    rows = ask(server, "shape_colours", [image(content) for content in (*PHOTOS.values(), b"?")])
    two, turned, none, bad = rows
    assert ["red red", "blue blue"] == sorted(two["labels"][:2], reverse=True)
    assert {"": 98} == {label: two["labels"].count(label) for label in two["labels"][2:]}
    expected = [np.multiply(SHAPES[label.split()[0]], [200, 400, 200, 400]) for label in two["labels"][:2]]
    np.testing.assert_allclose(two["boxes"][:2], expected, atol=6)
    assert ["green green", ""] == turned["labels"][:2]
    np.testing.assert_allclose(turned["boxes"][0], np.multiply([0.2, 0.2, 0.5, 0.5], [300, 200, 300, 200]), atol=6)
    assert 0.9 > turned["scores"][0] > 0.5
    assert ([2, 1, 0, 0], [True, True, True, False]) == ([row["count"] for row in rows], [row["ok"] for row in rows])
    assert {""} == {*none["labels"], *bad["labels"]}
    assert bad["error"].startswith("neither base64 nor a supported image format")


@pytest.mark.parametrize("contents", [[PHOTOS["none"]], [b"", b"?"]], ids=["no shape", "no image"])
def test_a_request_without_any_crop_is_answered(server: ServerProcess, contents: list[bytes]) -> None:
    rows = ask(server, "shape_colours", list(map(image, contents)))
    assert [0] * len(contents) == [row["count"] for row in rows]
    assert {""} == {label for row in rows for label in row["labels"]}


def test_the_client_reads_the_answers_as_those_of_a_detector(server: ServerProcess) -> None:
    with Client(server.target, model="shape_colours") as client:
        found = client.detect(PHOTOS["two shapes"])
    assert ["blue blue", "red red"] == sorted(box.label for box in found.boxes)


@pytest.mark.slow
def test_the_scores_of_two_classifiers_are_averaged(tmp_path: Path) -> None:
    with pipeline_steps.example("two_classifiers", tmp_path):
        pipeline_steps.two_classifiers()
        base_path = compose_example().parent
    softmax = [np.exp(sharpness) / (np.exp(sharpness) + 2) for sharpness in (8, 2)]
    with Client(transport=LocalTransport(base_path)) as client:
        file = io.BytesIO()
        Image.new("RGB", (30, 20), "#0f0").save(file, "PNG")
        green, bad = client.classify([file.getvalue(), b"?"])
    assert ("green", 1) == (green.label, green.top[0].class_id)
    assert np.mean(softmax) == pytest.approx(green.top[0].score, abs=1e-5)
    assert 1 == pytest.approx(sum(scored.score for scored in green.top), abs=1e-5)
    assert (False, None) == (bad.ok, bad.label)


def test_goldens_agree_and_warm_the_server_up(server: ServerProcess, versions: dict[str, Path]) -> None:
    for name, version in versions.items():
        index = json.loads((version / "assets.extra/goldens/index.json").read_text())
        goldens = read_goldens(version)
        assert (name, 2 if name == "add_sub_mul" else 4) == (index["model"], len(goldens.requests))
        for target, transport in ((server.target, "grpc"), (server.url, "rest")):
            with Client(target, model=name, transport=transport) as client:
                for golden in goldens.requests:
                    assert [] == replay(golden, client, goldens.tolerances)
    assert 2 == server.log.read_text().count("warm-up records")
