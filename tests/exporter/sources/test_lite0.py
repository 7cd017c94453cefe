"""EfficientNet-Lite0 as baked by the program, on real photos: the published figures, and that they'd show a mistake.

Top-1 alone hides a wrong recipe, so probabilities are compared.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from photos import labelled_photos

from savedmodel_bakery.exporter import labels, publish, sources
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS, complete_recipe, read_toml
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.wire import schema

TopK = Callable[[list[bytes]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def labelled() -> tuple[list[bytes], np.ndarray]:
    """20 photos of ImageNet and their class ids, from the files of foolbox, which is not imported."""
    found = labelled_photos()
    return [photo.read_bytes() for photo in found], np.array([int(photo.stem.split("_")[2]) for photo in found])


@pytest.fixture(scope="module")
def top_k(lite0: Path) -> Iterator[TopK]:
    """Ask the published version's signature top_k in a Session, as tensorflow_model_server does."""
    with contextlib.closing(tf.compat.v1.Session(graph=tf.Graph())) as session:
        with session.graph.as_default():
            loaded = tf.compat.v1.saved_model.load(session, ["serve"], str(lite0 / "1"))
        signature = loaded.signature_def["top_k"]
        fetches = {alias: info.name for alias, info in signature.outputs.items()}

        def top_k(images: list[bytes]) -> dict[str, np.ndarray]:
            found: dict[str, np.ndarray] = session.run(fetches, {signature.inputs["image"].name: images})
            return found

        yield top_k


PUBLISHED = {
    "coffee is espresso": ("coffee.png", 0, 967, b"espresso", 0.945),
    "chelsea is a tiger cat": ("chelsea.png", 0, 282, b"tiger cat", 0.415),
    "or an Egyptian cat": ("chelsea.png", 1, 285, b"Egyptian cat", 0.332),
}


@pytest.mark.parametrize(("photo", "place", "class_id", "label", "score"), PUBLISHED.values(), ids=PUBLISHED)
def test_the_published_figures(
    top_k: TopK, photos: dict[str, bytes], photo: str, place: int, class_id: int, label: bytes, score: float
) -> None:
    found = top_k([photos[photo]])
    assert (class_id, label) == (found["class_ids"][0, place], found["labels"][0, place])
    assert score == pytest.approx(found["scores"][0, place], abs=0.01)


def test_the_published_network_has_each_weight_once_and_no_batch_norm(lite0: Path) -> None:
    """49 kernels of convolutions and one of a dense layer, each with a bias: 4,694,024 numbers with the norms."""
    (meta_graph,) = schema.SavedModel.FromString((lite0 / "1" / "saved_model.pb").read_bytes()).meta_graphs
    nodes = [node for function in meta_graph.graph_def.library.function for node in function.node_def]
    assert "DepthwiseConv2dNative" in {node.op for node in nodes}
    assert "Rsqrt" not in {node.op for node in nodes}
    stored = dict(tf.train.list_variables(str(lite0 / "1" / "variables" / "variables")))
    sizes = [math.prod(shape) for name, shape in stored.items() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert (100, 4_631_000) == (len(sizes), sum(sizes))
    assert set(OPTIMISATIONS) == set(read_toml(lite0 / "1" / publish.RECIPE_FILE)["optimise"].split(","))


def true_scores(found: dict[str, Any], class_ids: np.ndarray) -> np.ndarray:
    """The score of each photo's true class; 0 where it is not listed."""
    hits = np.asarray(found["class_ids"]) == class_ids[:, np.newaxis]
    scores: np.ndarray = (np.asarray(found["scores"]) * hits).sum(axis=1)
    return scores


@pytest.fixture(scope="module")
def true_scores_with(labelled: tuple[list[bytes], np.ndarray]) -> Callable[..., np.ndarray]:
    """The probability of each photo's true class under the built-in recipe with the keywords' changes."""
    network = sources.read_network("efficientnet-lite0", sources.SourceOptions())

    def true_scores_with(**changes: Any) -> np.ndarray:
        chosen = complete_recipe(network.recipe, {"model": "efficientnet-lite0", "top_k": 1000, **changes})
        servable = ServableModule(network.call, chosen, labels.read_labels(chosen.source.labels))
        images, class_ids = labelled
        return true_scores(servable.top_k(tf.constant(images)), class_ids)

    return true_scores_with


@pytest.fixture(scope="module")
def right(true_scores_with: Callable[..., np.ndarray]) -> np.ndarray:
    """Those of the built-in recipe unchanged."""
    return true_scores_with()


def test_the_mean_probability_of_the_true_class_is_the_published_one(right: np.ndarray) -> None:
    assert 0.706 == pytest.approx(right.mean(), abs=0.005)


def test_the_published_version_recognises_18_of_20(
    top_k: TopK, labelled: tuple[list[bytes], np.ndarray], right: np.ndarray
) -> None:
    """And its scores are those of the library's."""
    images, class_ids = labelled
    found = top_k(images)
    assert found["ok"].all()
    assert 18 <= (found["class_ids"][:, 0] == class_ids).sum()
    scores = true_scores(found, class_ids)
    listed = scores > 0
    assert 18 <= listed.sum()
    np.testing.assert_allclose(scores[listed], right[listed], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "changes", [{"channels": "BGR"}, {"scale": "imagenet"}], ids=["BGR", "mean and deviation of ImageNet"]
)
def test_a_wrong_recipe_shows_in_the_mean_probability(
    true_scores_with: Callable[..., np.ndarray], right: np.ndarray, changes: dict[str, Any]
) -> None:
    assert true_scores_with(**changes).mean() <= right.mean() - 0.03
