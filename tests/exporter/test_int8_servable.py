"""A small classifier baked in int8: every signature, batches of any size, batching, the report, and `parity` later."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import int8_networks
import numpy as np
import pytest
import tensorflow as tf
from int8_networks import CLASSES, SIDE
from PIL import Image
from tf1_session import Loaded, loaded

from savedmodel_bakery import bake
from savedmodel_bakery.errors import RecipeError
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.bake import BakeResult
from savedmodel_bakery.exporter.calibration import Calibration
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.tasks.classify import Classify
from savedmodel_bakery.exporter.validation.validate import compare_with_source
from savedmodel_bakery.serving import warmup
from savedmodel_bakery.serving.models.loading import LoadOptions, load
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import StatusError

NAMES = [f"class {number}" for number in range(CLASSES)]
OPTIONS = {"size": (SIDE, SIDE), "scale": "-1..1", "resize": "bilinear"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with labels, 49 photos and a file that is none."""
    folder = tmp_path_factory.mktemp("int8")
    (folder / "photos").mkdir()
    levels = (int8_networks.images(49) * 60 + 127).clip(0, 255).astype(np.uint8)
    for number, image in enumerate(levels):
        Image.fromarray(image).save(folder / "photos" / f"{number}.png")
    (folder / "photos" / "page.jpg").write_bytes(b"<html>")
    (folder / "names.txt").write_text("\n".join(NAMES) + "\n")
    return folder


@pytest.fixture(scope="module")
def baked(folder: Path, recipe_of: Callable[..., Any]) -> BakeResult:
    recipe = recipe_of(**OPTIONS, model="int8_networks:small", labels=str(folder / "names.txt"))
    int8 = {"precision": "int8", "calibration": str(folder / "photos")}
    values = {name: value for name, value in {**recipe.to_values(), **int8}.items() if value is not None}
    return bake(recipe=values, out=folder / "out", min_agreement=0.7, parity_html=folder / "parity.html")


@pytest.fixture(scope="module")
def run(baked: BakeResult) -> Iterator[Loaded]:
    with loaded(baked.path) as run:
        yield run


@pytest.fixture(scope="module")
def photos(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((folder / "photos").glob("*.png"))]


def test_the_report_states_agreement_coverage_and_speed(baked: BakeResult, folder: Path) -> None:
    int8 = baked.parity.int8
    assert int8 is not None
    assert (20, 29) == (int8.photos, int8.quantisation.photos if int8.quantisation else None)
    assert 0.7 <= int8.share <= 1
    assert 0 < int8.mean_change < int8.max_change < 0.2
    stored = json.loads((baked.path / "assets.extra" / "parity.json").read_text())
    assert int8.to_json() == stored["int8"]
    assert {1, 8} == {speed["batch"] for speed in stored["int8"]["speeds"]}
    assert 23 == len(stored["photos"])  # the example photos, and those that were held back
    assert "int8 and float32 have the same labels for" in (folder / "parity.html").read_text()
    unreadable, few, *_ = baked.parity.warning.splitlines()
    assert unreadable.startswith("photos for calibration: skipped 1 that can't be read: ")
    assert "photos/page.jpg: it is neither base64 nor" in unreadable
    assert few == (
        "there are only 49 photos for calibration, including those that are held back; 50 or more are better"
    )
    assert baked.agreement is None
    assert 29 == len(baked.recipe.optimisation.digests)


def test_goldens_record_the_answers_of_int8_to_the_example_photos(baked: BakeResult, run: Loaded) -> None:
    lines = (baked.path / "assets.extra" / "goldens" / "top_k.jsonl").read_text().splitlines()
    assert 4 == len(lines)  # one with a bad image too
    golden = json.loads(lines[-1])
    recorded = base64.b64decode(golden["response"]["outputs"]["scores"]["tensor_content"])
    photo = base64.b64decode(golden["request"]["inputs"]["image"]["string_val"][0])
    assert photo in [file.read_bytes() for file in resources.example_photos()]
    np.testing.assert_allclose(np.frombuffer(recorded, np.float32), run("top_k", [photo])["scores"][0], atol=1e-5)


def test_filters_are_stored_once(baked: BakeResult) -> None:
    saved_model = schema.SavedModel.FromString((baked.path / "saved_model.pb").read_bytes())
    functions = saved_model.meta_graphs[0].graph_def.library.function
    counts = [sum(node.op == "_FusedQuantizedConv2D" for node in function.node_def) for function in functions]
    assert [5] == [count for count in counts if count]


def test_all_signatures_return_the_same(run: Loaded, photos: list[bytes]) -> None:
    best = run("top_k", photos[:3])
    assert [True] * 3 == best["ok"].tolist()
    assert best["labels"][:, 0].tolist() == run("serving_default", photos[:3])["output_0"].tolist()
    pixels = run("preprocess", photos[:3])["pixels"].round().astype(np.uint8)
    np.testing.assert_allclose(best["scores"], run("pixels", pixels)["scores"], atol=1e-5)
    pictures = [Image.open(io.BytesIO(file)) for file in run("preview", photos[:3])["png_bytes"]]
    assert pixels.tolist() == [np.asarray(picture).tolist() for picture in pictures]
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[photo]))}
            )
        ).SerializeToString()
        for photo in photos[:3]
    ]
    np.testing.assert_allclose(best["scores"], run("classify", examples)["scores"], atol=1e-5)


def test_batches_of_any_size_and_bad_images(run: Loaded, photos: list[bytes]) -> None:
    scores = run("top_k", photos[:32])["scores"]
    for count in (1, 2, 7, 8, 9, 31):
        np.testing.assert_allclose(scores[:count], run("top_k", photos[:count])["scores"], atol=1e-5)
    assert (0, 5) == run("top_k", np.array([], object))["scores"].shape
    assert (0, 5) == run("pixels", np.zeros((0, SIDE, SIDE, 3), np.uint8))["scores"].shape
    mixed = run("top_k", [b"", photos[1], b"?"])
    assert [False, True, False] == mixed["ok"].tolist()
    np.testing.assert_allclose(scores[1], mixed["scores"][1], atol=1e-5)
    assert [False, False] == run("top_k", [b"", b"?"])["ok"].tolist()


def test_batching_in_the_graph(
    folder: Path, run: Loaded, photos: list[bytes], recipe_of: Callable[..., Any], baked: BakeResult
) -> None:
    """All requests share runs of one network, which exists once."""
    values = {**baked.recipe.to_values(), "batch_max": 8}
    network = int8_networks.small()
    calibration = Calibration("photos", {str(number): photo for number, photo in enumerate(photos[:20])}, {}, {})
    servable = ServableModule(lambda batch: network(batch, training=False), recipe_of(**values), NAMES, calibration)
    servable.save(folder / "batching")
    with loaded(folder / "batching") as run_batched, ThreadPoolExecutor(8) as pool:
        assert (0, 5) == run_batched("top_k", np.array([], object))["scores"].shape
        alone = [run_batched("top_k", [photo])["scores"][0] for photo in photos[:16]]
        joined = list(pool.map(lambda photo: run_batched("top_k", [photo])["scores"][0], photos[:16]))
    np.testing.assert_allclose(alone, joined, atol=1e-5)
    np.testing.assert_allclose(run("top_k", photos[:16])["scores"], alone, atol=0.1)


def test_parity_of_a_published_version(baked: BakeResult, folder: Path) -> None:
    """Photos that it was calibrated with don't count."""
    files = sorted((folder / "photos").glob("*.png"))
    report = compare_with_source(
        baked.path, baked.recipe, files, lambda _: Classify.tolerance, lambda _: None, min_agreement=0.7
    )
    assert report.int8
    assert baked.parity.int8
    assert (20, baked.parity.int8.same) == (report.int8.photos, report.int8.same)
    assert report.is_within
    assert "the same labels for" in report.to_table()


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("operation", r"^NOT_FOUND: Op type not registered 'Lacking' in binary"),
        (
            "kernel",
            r"^INVALID_ARGUMENT: (\{\{function_node \w+\}\} )*No OpKernel was registered to support Op "
            r"'_FusedQuantizedConv2D' ",
        ),
    ],
)
def test_a_runtime_without_these_operations_does_not_load_it(
    lacks: str, reason: str, baked: BakeResult, tmp_path: Path
) -> None:
    """As on other CPUs than x86: the error is TensorFlow's, which sometimes begins with the functions' names."""
    version = shutil.copytree(baked.path, tmp_path / "1")
    saved_model = schema.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    for function in saved_model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "_FusedQuantizedConv2D" and lacks == "operation":
                node.op = "Lacking"
            elif node.op == "_FusedQuantizedConv2D":
                node.attr["Tfilter"].type = tf.quint8.as_datatype_enum
    (version / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    with pytest.raises(StatusError, match=reason):
        load("small", 1, version, LoadOptions(warm_up=warmup.replay))


def test_a_reference_is_rejected(baked: BakeResult, tmp_path: Path) -> None:
    import onnx_models

    onnx_models.means(tmp_path / "means.onnx")
    with pytest.raises(RecipeError, match=r"^--reference cannot be combined with precision int8"):
        bake(recipe=baked.recipe, out=tmp_path, reference=tmp_path / "means.onnx")
