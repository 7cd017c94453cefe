"""TF Hub modules that return feature vectors, and those of the TF 1 format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.exporter.recipe import complete_recipe
from savedmodel_bakery.exporter.sources import read_network, saved_model

tf1 = tf.compat.v1
IMAGES = np.random.default_rng(0).random((2, 8, 8, 3), np.float32)


def tf1_module(path: Path, *signatures: str) -> str:
    """Save a module of the TF 1 format: signatures from images to means, and their maxima as a layer's output.

    It has a graph without tags, whose feature vectors are means, and a graph for training.
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.float32, [None, 8, 8, 3])
        scale = tf.Variable(2.0)
        outputs = {"default": tf.reduce_mean(images, [1, 2]) * scale, "Network/max": tf.reduce_max(images, [1, 2])}
        signature = tf1.saved_model.predict_signature_def({"images": images}, outputs)
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(str(path))
        builder.add_meta_graph_and_variables(session, [], signature_def_map=dict.fromkeys(signatures, signature))
        builder.add_meta_graph(["train"], signature_def_map={"training": signature})
        builder.save()
    (path / "tfhub_module.pb").write_bytes(b"\x08\x03")
    return f"hub:{path}"


def tf2_module(path: Path) -> str:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32)], autograph=False)
        def __call__(self, images: tf.Tensor) -> tf.Tensor:
            return tf.reduce_mean(images, [1, 2])

    tf.saved_model.save(Module(), str(path))
    return str(path)


@pytest.mark.parametrize(
    ("signatures", "task", "options", "expected"),
    [
        (("default", "image_feature_vector"), None, {}, "embed"),
        (("image_classification", "image_feature_vector"), None, {}, None),
        (("image_classification", "image_feature_vector"), "embed", {}, "embed"),
        (("image_classification", "x"), None, {"source_signature": "x"}, None),
        (("default", "image_feature_vector"), None, {"source_signature": "image_feature_vector"}, "embed"),
    ],
    ids=["embedder", "classifier", "features of a classifier", "another signature", "stated signature"],
)
def test_the_task_of_the_tf1_format_is_that_of_its_signature(
    tmp_path: Path, signatures: tuple[str, ...], task: str | None, options: dict[str, Any], expected: str | None
) -> None:
    model = tf1_module(tmp_path / "m", *signatures)
    network = read_network({"model": model, "task": task, **options})
    assert expected == network.recipe.get("task")
    assert (expected is None) == ("labels" in network.recipe) == ("outputs" in network.recipe)
    np.testing.assert_allclose(2 * IMAGES.mean(axis=(1, 2)), network.call(tf.constant(IMAGES)), rtol=1e-5)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://tfhub.dev/google/imagenet/mobilenet_v2_100_224/feature_vector/5", "embed"),
        ("https://www.kaggle.com/models/google/mobilenet-v2/tensorFlow2/100-224-feature-vector/2", "embed"),
        ("https://tfhub.dev/google/imagenet/mobilenet_v2_100_224/classification/5", None),
    ],
)
def test_the_task_of_the_tf2_format_is_that_of_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, expected: str | None
) -> None:
    monkeypatch.setattr(saved_model, "_resolve", lambda _: Path(tf2_module(tmp_path / "m")))
    assert expected == read_network({"model": url}).recipe.get("task")


def test_the_task_of_a_folder_of_the_tf2_format_is_the_users(tmp_path: Path) -> None:
    values = {"model": f"hub:{tf2_module(tmp_path / 'm')}", "task": "embed"}
    recipe = complete_recipe(read_network(values).recipe, values)
    assert ("embed", None, None) == (recipe.answers.task, recipe.answers.labels, recipe.answers.outputs)
