"""A network with two images, numbers, text and an id is baked, served and called over every transport.

The second image has another size and preprocessing than the first.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import requests
from amqp_worker import WorkerProcess
from browser import accessibility_report, chromium
from mixed_networks import LABELS, RECIPE, SECOND_SIDES, SIDE, Colour, expected_scores, pairs
from PIL import Image
from rabbitmq import RabbitMQ
from server_process import ServerProcess

from savedmodel_bakery import AmqpClient, Client
from savedmodel_bakery.client.commands.cli import main
from savedmodel_bakery.client.goldens import read_goldens, replay
from savedmodel_bakery.exporter.bake import bake

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

COLOURS: list[Colour] = [(255, 0, 51), (0, 204, 255), (51, 51, 51)]
SECONDS: list[Colour] = [(51, 0, 51), (0, 0, 0), (153, 51, 0)]
TAB = np.array([[0, 1], [3, -2], [2, -1]], np.float32)
TEXT = ["red", "blue", "gray"]
STORE = [[1], [0], [2]]
OTHERS = {"tab": TAB, "text": np.array(TEXT), "store": np.array(STORE, np.int32)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of the network's size, of one colour each, and a second one for each."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, colours in (("", COLOURS), ("second", SECONDS)):
        for place, colour in enumerate(colours):
            Image.new("RGB", (SIDE, SIDE), colour).save(folder / f"{place}{name}.png")
    (folder / "names.txt").write_text("\n".join(LABELS) + "\n")
    return folder


@pytest.fixture(scope="module")
def photos(folder: Path) -> list[Path]:
    return [folder / f"{place}.png" for place in range(3)]


@pytest.fixture(scope="module")
def inputs(folder: Path) -> dict[str, Any]:
    seconds = [folder / f"{place}second.png" for place in range(3)]
    return {"image_2": seconds, "tab": TAB, "text": TEXT, "store": STORE}


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """The network takes the mean of the second images, of which a third is a black margin."""
    seconds = [(blue * 2 / 3, green * 2 / 3, red * 2 / 3) for red, green, blue in SECONDS]
    return expected_scores(pairs(), COLOURS, seconds, OTHERS)


@pytest.fixture(scope="module")
def version(folder: Path, photos: list[Path]) -> Path:
    values = {
        photo.name: {"image_2": f"{place}second.png", "tab": TAB[place].tolist(), "text": text, "store": store}
        for place, (photo, text, store) in enumerate(zip(photos, TEXT, STORE, strict=True))
    }
    (folder / "values.json").write_text(json.dumps(values))
    result = bake(
        model="mixed_networks:pairs",
        name="pairs",
        out=folder,
        recipe={**RECIPE, "labels": str(folder / "names.txt"), "batch_max": 4},
        photos=photos,
        input_values=folder / "values.json",
    )
    assert result.parity.is_within
    return result.path


@pytest.fixture(scope="module")
def server(version: Path) -> Iterator[ServerProcess]:
    flags = ("--model_name=pairs", f"--model_base_path={version.parent}", "--enable_playground")
    with ServerProcess(*flags, log=version.parent.parent / "server.log") as server:
        yield server


def scores_of(top: Any) -> list[float]:
    """The scores of a result's classes in the order of their ids."""
    return [scored.score for scored in sorted(top, key=lambda scored: scored.class_id)]


def scores_in(row: dict[str, Any]) -> list[float]:
    """The same of a result as JSON."""
    return [top["score"] for top in sorted(row["top"], key=lambda top: top["class_id"])]


def test_every_transport_returns_the_scores_of_the_network(
    server: ServerProcess,
    broker: RabbitMQ,
    tmp_path: Path,
    photos: list[Path],
    inputs: dict[str, Any],
    expected: np.ndarray,
) -> None:
    """The pair with a bad image harms its own row alone."""
    two = {**inputs, "image_2": [inputs["image_2"][0], b"?", inputs["image_2"][2]]}
    with (
        WorkerProcess(broker.url(), "--server", server.target, log=tmp_path / "log"),
        Client(server.target, model="pairs") as grpc,
        Client(server.url, model="pairs") as rest,
        Client(server.url, transport="v2", model="pairs") as v2,
        Client(server.target, transport="v2-grpc", model="pairs") as v2_grpc,
        AmqpClient(broker.url(), model="pairs") as amqp,
    ):
        for client in (grpc, rest, v2, v2_grpc, amqp):
            first, bad, last = client.classify(photos, inputs=two)
            assert "paired with an image_2 that is neither" in str(bad.error)
            np.testing.assert_allclose(expected[[0, 2]], [scores_of(each.top) for each in (first, last)], atol=1e-5)
            single = {name: rows[1] for name, rows in inputs.items()}
            np.testing.assert_allclose(expected[1], scores_of(client.classify(photos[1], inputs=single).top), atol=1e-5)
        arrays = [np.asarray(Image.open(photo)) for photo in photos]
        seconds = [np.full((*SECOND_SIDES, 3), colour, np.uint8) for colour in SECONDS]
        results = grpc.classify(arrays, inputs={**inputs, "image_2": seconds})  # by the signature `pixels`
        of_pixels = expected_scores(pairs(), COLOURS, [colour[::-1] for colour in SECONDS], OTHERS)
        np.testing.assert_allclose(of_pixels, [scores_of(each.top) for each in results], atol=1e-5)


def test_goldens_are_replayed(server: ServerProcess, version: Path) -> None:
    with Client(server.target, model="pairs") as client:
        goldens = read_goldens(version)
        problems = [replay(golden, client, goldens.tolerances) for golden in goldens.requests]
    assert [[]] * 10 == problems  # top_k with each photo and a bad one, and one of each other signature


def test_photos_with_fields(
    server: ServerProcess, photos: list[Path], inputs: dict[str, Any], expected: np.ndarray
) -> None:
    named = [("file", photo) for photo in photos] + [("image_2", photo) for photo in inputs["image_2"]]
    files = [(name, (photo.name, photo.read_bytes())) for name, photo in named]
    fields = {"tab": list(map(json.dumps, TAB.tolist())), "text": TEXT, "store": list(map(json.dumps, STORE))}
    answer = requests.post(f"{server.url}/photos/pairs", files=files, data=fields, timeout=60).json()
    scores = [
        [top["score"] for top in sorted(row["top"], key=lambda top: top["class_id"])] for row in answer["results"]
    ]
    np.testing.assert_allclose(expected, scores, atol=1e-5)


def test_the_playground_has_a_field_for_each_input(
    server: ServerProcess, photos: list[Path], inputs: dict[str, Any], expected: np.ndarray
) -> None:
    """It sends what they contain, as the command does that it shows."""
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{server.url}/")
        page.get_by_label("tab (JSON, float[2])").fill(json.dumps(TAB[1].tolist()))
        page.get_by_label("text (text)").fill(TEXT[1])
        page.get_by_label("store (JSON, int32[1])").fill(json.dumps(STORE[1]))
        page.get_by_label("image_2 (photo)").set_input_files(inputs["image_2"][1])
        page.set_input_files("#files", photos[1])
        page.locator("article details").wait_for()
        shown = page.locator("article section").inner_text()
        codes = [page.get_by_label(language).first.text_content() for language in ("curl", "Python")]
        assert "" == accessibility_report(page)
    assert f"{expected[1].max():.1%}".replace("%", " %") in shown, shown
    for command in (["bash", "-c", codes[0]], [sys.executable, "-c", codes[1]]):
        done = subprocess.run(command, cwd=photos[1].parent, capture_output=True, text=True, timeout=60, check=True)
        [row] = json.loads(done.stdout)["results"]
        np.testing.assert_allclose(expected[1], scores_in(row), atol=1e-5)


@pytest.fixture
def run(server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command of the client, and return what it prints."""

    def run(command: str, *arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main([command, "-t", server.target, "-m", "pairs", *arguments])
        printed = capsys.readouterr()
        assert not caught.value.code, printed.err
        return printed.out

    return run


def test_ask(
    run: Callable[..., str], photos: list[Path], inputs: dict[str, Any], expected: np.ndarray, tmp_path: Path
) -> None:
    np.save(tmp_path / "tab.npy", TAB[1])
    options = {"image_2": inputs["image_2"][1], "tab": tmp_path / "tab.npy", "text": TEXT[1], "store": STORE[1]}
    named = [part for name, value in options.items() for part in ("--input", f"{name}={value}")]
    row = json.loads(run("ask", "--json", *named, str(photos[1])))
    np.testing.assert_allclose(expected[1], scores_in(row), atol=1e-5)


def test_bench(run: Callable[..., str], photos: list[Path], inputs: dict[str, Any], expected: np.ndarray) -> None:
    """Each photo is sent with its own values, here in one request for all."""
    values = {"image_2": inputs["image_2"], "tab": TAB.tolist(), "text": TEXT, "store": STORE}
    named = [part for name, rows in values.items() for row in rows for part in ("--input", f"{name}={row}")]
    labels = [part for row in expected for part in ("--expect", LABELS[row.argmax()])]
    row = json.loads(run("bench", "--json", "--batch-size=3", "--requests=2", *named, *labels, *map(str, photos)))
    assert (2, {}) == (row["answered"], row["errors"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_bulk(
    run: Callable[..., str],
    photos: list[Path],
    inputs: dict[str, Any],
    expected: np.ndarray,
    tmp_path: Path,
    suffix: str,
) -> None:
    columns: dict[str, list[Any]] = {"image": list(map(str, photos)), "image_2": list(map(str, inputs["image_2"]))}
    if suffix == "csv":
        columns |= {"tab": list(map(json.dumps, TAB.tolist())), "text": TEXT, "store": list(map(json.dumps, STORE))}
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        (tmp_path / "list.csv").write_text(file.getvalue())
    else:
        columns |= {"tab": TAB.tolist(), "text": TEXT, "store": STORE}
        pq.write_table(pa.table(columns), tmp_path / "list.parquet")
    run("bulk", str(tmp_path / f"list.{suffix}"), "--out", str(tmp_path / "rows.jsonl"))
    rows = sorted(map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()), key=lambda row: row["image"])
    np.testing.assert_allclose(expected, list(map(scores_in, rows)), atol=1e-5)
