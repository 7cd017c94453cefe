"""Known networks and TF Hub modules are baked as embedders without further options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from server_process import ServerProcess

from savedmodel_bakery import Client
from savedmodel_bakery.exporter import resources
from savedmodel_bakery.exporter.bake import bake

pytestmark = pytest.mark.slow

tf1 = tf.compat.v1
PHOTOS = {photo.stem: photo.read_bytes() for photo in resources.example_photos()}


def embed(folder: Path, **options: Any) -> np.ndarray:
    """Bake a model, serve it, and return the vectors of the example photos: float32 [photos, size]."""
    result = bake(out=folder, name="embedder", **options)
    assert "embed" == result.recipe.answers.task
    flags = ("--model_name=embedder", f"--model_base_path={result.path.parent}", "--enable_model_warmup=false")
    with (
        ServerProcess(*flags, log=folder / "log") as server,
        Client(port=server.port, model="embedder") as client,
    ):
        return client.predict({"image": np.array([*PHOTOS.values()], object)}).outputs["embedding"]


def test_different_photos_have_different_vectors(tmp_path: Path) -> None:
    """With the real weights of EfficientNet-Lite0; vectors of length 1, so their products are cosines."""
    vectors = embed(tmp_path, model="efficientnet-lite0", recipe={"task": "embed", "normalise": "l2"})
    assert (len(PHOTOS), 1280) == vectors.shape
    cosines = vectors @ vectors.T
    assert cosines == pytest.approx(cosines.T)
    assert [1.0] * len(PHOTOS) == pytest.approx(cosines.diagonal().tolist())
    assert cosines[~np.eye(len(PHOTOS), dtype=bool)].max() < 0.5


def test_a_keras_application_without_its_classifier(tmp_path: Path) -> None:
    recipe = {"task": "embed", "weights": "none"}
    assert (len(PHOTOS), 576) == embed(tmp_path, model="keras:MobileNetV3Small", recipe=recipe).shape


def test_a_module_of_the_tf1_format_that_returns_feature_vectors(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.float32, [None, 8, 8, 3])
        vectors = tf.reduce_mean(images, [1, 2]) * tf.Variable([1.0, 2.0, 4.0])
        signature = tf1.saved_model.predict_signature_def({"images": images}, {"default": vectors, "input": images})
        signatures = {"image_feature_vector": signature, "default": signature}
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(str(tmp_path / "module"))
        builder.add_meta_graph_and_variables(session, [], signature_def_map=signatures)
        builder.add_meta_graph(["train"], signature_def_map=signatures)
        builder.save()
    (tmp_path / "module" / "tfhub_module.pb").write_bytes(b"\x08\x03")
    vectors = embed(tmp_path, model=f"hub:{tmp_path / 'module'}")
    assert (len(PHOTOS), 3) == vectors.shape
    assert (0 < vectors).all()
    assert (vectors <= [1, 2, 4]).all()
