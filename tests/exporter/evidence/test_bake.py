"""`bake --inputs` needs no option of preprocessing, and publishes nothing that contradicts the training."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import tiny_models
import tomllib

from savedmodel_bakery.exporter import resources

PREPARE = """
import tensorflow as tf

def prepare(path):
    image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
    return tf.image.resize(image, (8, 8)) / 255
"""
FOUND = {
    "crop": "none",
    "resize": "bilinear",
    "antialias": False,
    "scale": "0..1",
    "channels": "RGB",
    "jpeg_dct": "fast",
}


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    tiny_models.write_workshop(folder)
    (folder / "training.py").write_text(PREPARE)
    (folder / "photos").mkdir()
    for photo in resources.example_photos():
        shutil.copy(photo, folder / "photos")
    return folder


def bake(workshop: Path, *more: str) -> tiny_models.Run:
    options = ("--model", "tiny:build", "--labels", "rgb.txt", "--outputs", "probabilities", "--photos", "photos")
    return tiny_models.run(workshop, "bake", *options, "--inputs", "training:prepare", "--out", "out", *more)


def test_the_rest_of_the_recipe_is_found(workshop: Path) -> None:
    run = bake(workshop, "--name", "tiny")
    assert 0 == run.code, run.stderr
    assert re.search(r"^resize +bilinear +found: 0\.00 levels against ", run.stderr, re.M)
    recipe = tomllib.loads(run.after["tiny/1/assets.extra/recipe.toml"].decode())
    assert FOUND == {name: recipe[name] for name in FOUND}
    evidence = json.loads(run.after["tiny/1/assets.extra/parity.json"])["evidence"][0]
    assert ("inputs", 3) == (evidence["kind"], evidence["photos"])
    assert evidence["distance"] < 0.01
    shown = tiny_models.run(workshop, "inspect", "out/tiny/1").stdout
    assert "the recipe agrees with the training: 3 inputs, 0.00 levels" in shown
    again = tiny_models.run(workshop, "parity", "out/tiny/1", "--photos", "photos", "--inputs", "training:prepare")
    assert "the recipe agrees with the training: 3 inputs, 0.00 levels" in again.stdout


def test_a_contradiction_is_not_published(workshop: Path) -> None:
    run = bake(workshop, "--name", "wrong", "--channels", "BGR")
    assert 1 == run.code
    assert "with --channels RGB; channels BGR is stated" in run.stderr
    assert run.before == run.after
