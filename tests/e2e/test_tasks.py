"""Networks of every task are baked and served."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
import requests
from PIL import Image
from server_process import ServerProcess

from savedmodel_bakery.client import Client
from savedmodel_bakery.exporter.bake import bake

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
REDNESS = 2.0  # the logit of a plain red image, and the negative one of a green image


def picture(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 30), colour).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="module", params=["logits", "probabilities", "logits without an axis"])
def binary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Keras model with one output, which says whether an image is red rather than green."""
    import keras

    folder = tmp_path_factory.mktemp("binary")
    images = keras.Input((8, 8, 3))
    activation = "sigmoid" if request.param == "probabilities" else None
    dense = keras.layers.Dense(1, activation=activation)
    outputs = dense(keras.layers.GlobalAveragePooling2D()(images))
    if request.param == "logits without an axis":
        outputs = keras.layers.Reshape(())(outputs)
    dense.set_weights([np.float32([[REDNESS], [-REDNESS], [0]]), np.zeros(1, np.float32)])
    keras.Model(images, outputs).save(folder / "red.keras")
    (folder / "names.txt").write_text("green\nred\n")
    recipe = {**RECIPE, "labels": str(folder / "names.txt"), "outputs": request.param.split()[0], "threshold": 0.8}
    result = bake(model=str(folder / "red.keras"), out=folder, recipe=recipe)
    assert result.parity.is_within
    assert "binary" == result.recipe.answers.task
    return result.path.parent


@pytest.mark.parametrize("transport", ["grpc", "rest"])
def test_one_output_decides_between_two_labels(binary: Path, tmp_path: Path, transport: str) -> None:
    flags = ("--model_name=red", f"--model_base_path={binary}")
    probability = 1 / (1 + np.exp(-REDNESS))
    images = [picture("#f00"), picture("#0f0"), picture("#f80"), b"?"]  # the third one is red with 0.72: below 0.8
    with ServerProcess(*flags, log=tmp_path / "log") as server:
        target = server.target if transport == "grpc" else server.url
        with Client(target, model="red", transport=transport) as client:
            *results, bad = client.classify_images(images, top_k=2)
            assert ["red", "green", "red"] == [result.top[0].label for result in results]
            for result, expected in zip(results, (probability, probability, 0.7177), strict=True):
                assert expected == pytest.approx(result.top[0].score, abs=0.002)
                assert 1.0 == pytest.approx(sum(top.score for top in result.top))
            assert not bad.ok
            outputs = client.predict({"image": np.array(images[:3], object)}).outputs
            assert [b"red", b"green", b"green"] == outputs["output_0"].tolist()
        body = {"instances": [{"b64": base64.b64encode(images[2]).decode()}]}
        assert {"predictions": ["green"]} == requests.post(
            f"{server.url}/v1/models/red:predict", json=body, timeout=30
        ).json()
