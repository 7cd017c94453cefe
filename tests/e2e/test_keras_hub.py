"""Presets of KerasHub are baked with their own preprocessing, and served without KerasHub.

KerasHub is in a folder of its own, which `make test-slow` makes.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery import Client
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.recipe import read_recipe_file

pytestmark = pytest.mark.slow

PHOTOS = resources.example_photos()
IMAGES = np.array([photo.read_bytes() for photo in PHOTOS], object)
SIDE = 96  # of the networks' inputs


def run_python(clone: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with KerasHub."""
    path = [str(clone), str(clone / ".cache" / "keras-hub"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def presets(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the presets and their expected outputs, and with label files."""
    folder = tmp_path_factory.mktemp("presets")
    script = clone / "tests" / "support" / "keras_hub_presets.py"
    made = run_python(clone, str(script), str(folder), *map(str, PHOTOS), folder=folder)
    assert 0 == made.returncode, made.stderr
    (folder / "three.txt").write_text("a\nb\nc\n")
    (folder / "two.txt").write_text("sky\nroad\n")
    return folder


@pytest.fixture(scope="module")
def bake(clone: Path, presets: Path) -> Callable[..., Path]:
    """Bake a preset and return the version's folder."""

    def bake(preset: str, *options: str) -> Path:
        baked = run_python(
            clone, "-m", "savedmodel_bakery", "bake", "--model", f"keras-hub:{preset}", *options, folder=presets
        )
        assert 0 == baked.returncode, baked.stderr
        return presets / baked.stdout.strip()

    return bake


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, np.ndarray]]:
    def serve(version: Path, signature: str = "serving_default") -> dict[str, np.ndarray]:
        """Serve a version, and return the outputs of a signature for the photos."""
        flags = (
            f"--model_name={version.parent.name}",
            f"--model_base_path={version.parent}",
            "--enable_model_warmup=false",
        )
        log = tmp_path_factory.mktemp("server") / "log"
        with (
            ServerProcess(*flags, log=log) as server,
            Client(port=server.port, model=version.parent.name) as client,
        ):
            return dict(client.predict({"image": IMAGES}, signature=signature).outputs)

    return serve


def test_a_classifier_answers_as_in_keras_hub(
    bake: Callable[..., Path], serve: Callable[..., dict[str, np.ndarray]], presets: Path
) -> None:
    """Its converter crops, antialiases and normalises; the crop of an odd margin may be off by a pixel."""
    version = bake("classifier", "--labels", "three.txt")
    expected = np.load(presets / "expected.npz")
    values = read_recipe_file(version / "assets.extra" / "recipe.toml").values
    assert ("imagenet", "1", True) == (values["scale"], values["crop"], values["antialias"])
    outputs = serve(version, "top_k")
    scores = np.zeros_like(expected["scores"])
    np.put_along_axis(scores, outputs["class_ids"], outputs["scores"], axis=1)
    np.testing.assert_allclose(expected["scores"], scores, atol=0.02)
    assert abs(expected["pixels"] - serve(version, "preprocess")["pixels"]).mean() < 2


def test_the_converter_of_a_preset_can_be_stated_for_another_model(clone: Path, presets: Path) -> None:
    code = (
        "from savedmodel_bakery.exporter.sources import read_preprocessing as read; print(read('keras-hub:deep_lab'))"
    )
    values = ast.literal_eval(run_python(clone, "-c", code, folder=presets).stdout)
    assert ("0..1", "none", (SIDE, SIDE)) == (values["scale"], values["crop"], values["size"])


def test_a_classifier_without_its_head_is_an_embedder(
    bake: Callable[..., Path], serve: Callable[..., dict[str, np.ndarray]]
) -> None:
    version = bake("classifier", "--task", "embed", "--name", "embedder")
    assert (len(PHOTOS), 64) == serve(version)["embedding"].shape


@pytest.mark.parametrize("preset", ["deep_lab", "segformer"])
def test_a_segmenter_gives_classes_the_same_shares_as_in_keras_hub(
    bake: Callable[..., Path], serve: Callable[..., dict[str, np.ndarray]], presets: Path, preset: str
) -> None:
    version = bake(preset, "--labels", "two.txt")
    expected = np.load(presets / "expected.npz")[f"{preset}_shares"]
    np.testing.assert_allclose(expected, serve(version)["shares"], atol=0.02)


def test_a_detector_finds_the_same_box_as_in_keras_hub(
    bake: Callable[..., Path], serve: Callable[..., dict[str, np.ndarray]], presets: Path
) -> None:
    version = bake("detector", "--labels", "two.txt")
    expected, outputs = np.load(presets / "expected.npz"), serve(version)
    np.testing.assert_allclose(expected["best"], outputs["scores"][:, 0], atol=0.02)
    for photo, expected_box, box in zip(PHOTOS, expected["box"], outputs["boxes"][:, 0], strict=True):
        with Image.open(photo) as picture:
            width, height = picture.size
        zoom = max(width, height) / SIDE
        margin = (SIDE - np.array([height, width, height, width]) / zoom) / 2
        in_photo = ((expected_box - margin) * zoom).clip(0, [height, width, height, width])
        np.testing.assert_allclose(in_photo, box, atol=2 * zoom)


def test_a_backbone_is_rejected(clone: Path, presets: Path) -> None:
    (presets / "backbone").mkdir()
    (presets / "backbone" / "task.json").write_text('{"registered_name": "keras_hub>ResNetBackbone"}')
    rejected = run_python(
        clone, "-m", "savedmodel_bakery", "bake", "--model", "keras-hub:backbone", folder=presets
    )  # fmt: skip
    assert 1 == rejected.returncode
    assert rejected.stderr.endswith(
        "error: backbone is a preset of keras_hub>ResNetBackbone: must be one of ImageClassifier, ImageSegmenter, "
        "RetinaNetObjectDetector\n"
    )
