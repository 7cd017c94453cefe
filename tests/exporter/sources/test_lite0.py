"""A baked EfficientNet-Lite0 on real photos: its published scores, which a wrong recipe would change.

Top-1 accuracy alone hides a wrong recipe, so probabilities are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from photos import labelled_photos
from tf1_session import loaded

from savedmodel_bakery.exporter import publish, resources, sources
from savedmodel_bakery.exporter.recipe import OPTIMISATIONS, complete_recipe, read_recipe_file
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.wire import schema

TopK = Callable[[list[bytes]], dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def labelled() -> tuple[list[bytes], np.ndarray]:
    """20 photos of ImageNet and their class ids, from the files of the package foolbox, which is not imported."""
    paths = labelled_photos()
    return [path.read_bytes() for path in paths], np.array([int(path.stem.split("_")[2]) for path in paths])


@pytest.fixture(scope="module")
def top_k(lite0: Path) -> Iterator[TopK]:
    """Run the signature top_k of the published version in a Session, as tensorflow_model_server does."""
    with loaded(lite0 / "1") as run:
        yield lambda images: run("top_k", images)


PUBLISHED = {
    "coffee is espresso": ("coffee.png", 0, 967, b"espresso", 0.945),
    "chelsea is a tiger cat": ("chelsea.png", 0, 282, b"tiger cat", 0.415),
    "or chelsea is an Egyptian cat": ("chelsea.png", 1, 285, b"Egyptian cat", 0.332),
}


@pytest.mark.parametrize(("photo", "rank", "class_id", "label", "score"), PUBLISHED.values(), ids=PUBLISHED)
def test_published_scores(
    top_k: TopK, photos: dict[str, bytes], photo: str, rank: int, class_id: int, label: bytes, score: float
) -> None:
    outputs = top_k([photos[photo]])
    assert (class_id, label) == (outputs["class_ids"][0, rank], outputs["labels"][0, rank])
    assert score == pytest.approx(outputs["scores"][0, rank], abs=0.01)


def test_the_published_network_has_each_kernel_once_and_no_batch_norm(lite0: Path) -> None:
    """49 kernels of convolutions and one of a dense layer; with the batch norms, 4,694,024 parameters.

    The biases, 22,008 numbers, are constants.
    """
    (meta_graph,) = schema.SavedModel.FromString((lite0 / "1" / "saved_model.pb").read_bytes()).meta_graphs
    nodes = [node for function in meta_graph.graph_def.library.function for node in function.node_def]
    assert "DepthwiseConv2dNative" in {node.op for node in nodes}
    assert "Rsqrt" not in {node.op for node in nodes}
    stored = dict(tf.train.list_variables(str(lite0 / "1" / "variables" / "variables")))
    sizes = [math.prod(shape) for name, shape in stored.items() if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert (50, 4_631_000 - 22_008) == (len(sizes), sum(sizes))
    assert set(OPTIMISATIONS) == set(read_recipe_file(lite0 / "1" / publish.RECIPE_FILE).values["optimise"].split(","))


def true_scores(outputs: dict[str, Any], class_ids: np.ndarray) -> np.ndarray:
    """Return the score of each photo's true class; 0 if it is not among the labels."""
    hits = np.asarray(outputs["class_ids"]) == class_ids[:, np.newaxis]
    scores: np.ndarray = (np.asarray(outputs["scores"]) * hits).sum(axis=1)
    return scores


@pytest.fixture(scope="module")
def true_scores_with(labelled: tuple[list[bytes], np.ndarray]) -> Callable[..., np.ndarray]:
    """Compute the probability of each photo's true class; keywords change the built-in recipe."""
    network = sources.read_network({"model": "efficientnet-lite0"})

    def true_scores_with(**changes: Any) -> np.ndarray:
        recipe = complete_recipe(network.recipe, {"model": "efficientnet-lite0", "top_k": 1000, **changes})
        servable = ServableModule(network.call, recipe, resources.read_class_names(recipe.answers.labels))
        images, class_ids = labelled
        return true_scores(servable.functions["top_k"](tf.constant(images)), class_ids)

    return true_scores_with


@pytest.fixture(scope="module")
def expected_scores(true_scores_with: Callable[..., np.ndarray]) -> np.ndarray:
    """The probabilities with the built-in recipe."""
    return true_scores_with()


def test_the_mean_probability_of_the_true_class_is_the_published_one(expected_scores: np.ndarray) -> None:
    assert 0.706 == pytest.approx(expected_scores.mean(), abs=0.005)


def test_the_published_version_recognises_18_of_20(
    top_k: TopK, labelled: tuple[list[bytes], np.ndarray], expected_scores: np.ndarray
) -> None:
    """And its scores equal those of the unpublished module."""
    images, class_ids = labelled
    outputs = top_k(images)
    assert outputs["ok"].all()
    assert 18 <= (outputs["class_ids"][:, 0] == class_ids).sum()
    scores = true_scores(outputs, class_ids)
    listed = scores > 0
    assert 18 <= listed.sum()
    np.testing.assert_allclose(scores[listed], expected_scores[listed], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"channels": "BGR"}, {"scale": "imagenet"}], ids=["BGR", "scale of ImageNet"])
def test_a_wrong_recipe_lowers_the_mean_probability(
    true_scores_with: Callable[..., np.ndarray], expected_scores: np.ndarray, changes: dict[str, Any]
) -> None:
    assert true_scores_with(**changes).mean() <= expected_scores.mean() - 0.03
