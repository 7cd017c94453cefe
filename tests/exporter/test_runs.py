"""Batching in the graph: which requests share a run of the network, and that no response changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import batch_size_model
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tf1_session import Loaded, loaded

from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.runs import batch_calls
from savedmodel_bakery.wire import schema

# Longer than any test, so a batch that runs is full.
FOREVER_US = 60_000_000

Encode = Callable[..., bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batching")


@pytest.fixture(scope="module")
def patient(folder: Path) -> Path:
    """A model that waits for three images."""
    return batch_size_model.save(folder / "patient", batch_max=3, batch_timeout_us=FOREVER_US)


@pytest.fixture(scope="module")
def run_patient(patient: Path) -> Iterator[Loaded]:
    with loaded(patient) as run:
        yield run


@pytest.fixture(scope="module")
def hasty(folder: Path) -> Iterator[Loaded]:
    """A model that never waits, and pads batches to 2 or 4."""
    with loaded(batch_size_model.save(folder / "hasty", batch_max=4, allowed_batch_sizes="2,4")) as run:
        yield run


@pytest.fixture(scope="module")
def green(encode: Encode) -> bytes:
    return encode(Image.new("RGB", (20, 30), (51, 204, 0)), "PNG")


def run_concurrently(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls concurrently and return their results."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def pixels(*levels: int) -> np.ndarray:
    """Return images of one gray level each."""
    return np.repeat(np.array(levels, np.uint8), batch_size_model.SIDE**2 * 3).reshape(
        -1, batch_size_model.SIDE, batch_size_model.SIDE, 3
    )


def by_class(outputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return scores in the order of class ids, float32 [batch, classes]; NaN for classes without a score."""
    scores = np.full((len(outputs["scores"]), len(batch_size_model.CLASSES)), np.nan, np.float32)
    for row, ids, best in zip(scores, outputs["class_ids"], outputs["scores"], strict=True):
        row[ids[ids >= 0]] = best[ids >= 0]
    return scores


def sizes(outputs: dict[str, np.ndarray]) -> list[float]:
    """Return the size of each row's batch."""
    batch_sizes: list[float] = by_class(outputs)[:, 3].tolist()
    return batch_sizes


def test_requests_to_all_signatures_share_a_run(run_patient: Loaded, green: bytes) -> None:
    """Each has one image and waits for two others."""
    top_k, array, default = run_concurrently(
        lambda: run_patient("top_k", [green]),
        lambda: run_patient("pixels", pixels(255)),
        lambda: run_patient("serving_default", [green]),
    )
    np.testing.assert_allclose(by_class(top_k), [[0.2, 0.8, 0.0, 3.0]], atol=1e-5)
    np.testing.assert_allclose(by_class(array), [[1.0, 1.0, 1.0, 3.0]], atol=1e-5)
    assert [b"batch size"] == default["output_0"].tolist()


def test_bad_images_are_not_part_of_a_batch(run_patient: Loaded, green: bytes) -> None:
    good, mixed = run_concurrently(
        lambda: run_patient("top_k", [green]),
        lambda: run_patient("top_k", [b"", green, b"?", green, b""]),
    )
    bad_row, good_row = [np.nan] * 4, [0.2, 0.8, 0.0, 3.0]
    np.testing.assert_allclose(by_class(good), [good_row], atol=1e-5)
    np.testing.assert_allclose(by_class(mixed), [bad_row, good_row, bad_row, good_row, bad_row], atol=1e-5)
    assert [False, True, False, True, False] == mixed["ok"].tolist()


def test_a_rejected_request_is_not_part_of_a_batch(run_patient: Loaded, green: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image 0 is empty"):
        run_patient("serving_default", [b"", green])
    assert [3.0, 3.0, 3.0] == sizes(run_patient("pixels", pixels(0, 1, 2)))


def test_an_empty_request_does_not_wait(run_patient: Loaded) -> None:
    outputs = run_patient("top_k", np.array([], object))
    assert (0, 4) == outputs["scores"].shape
    assert [] == run_patient("serving_default", np.array([], object))["output_0"].tolist()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_each_row_has_its_own_scores(hasty: Loaded, rows: int) -> None:
    levels = np.arange(1, 20 * rows, 20)
    scores = by_class(hasty("pixels", pixels(*levels)))[:, :3]
    np.testing.assert_allclose(scores, np.repeat(levels, 3).reshape(-1, 3) / 255, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, [2]), (2, [2] * 2), (3, [4] * 3), (4, [4] * 4), (9, [4] * 8 + [2])], ids=str
)
def test_a_request_is_split_and_padded_to_allowed_sizes(hasty: Loaded, rows: int, expected: Sequence[float]) -> None:
    assert expected == sizes(hasty("pixels", pixels(*range(rows))))


def test_runs_of_a_request_fill_whole_batches(folder: Path) -> None:
    """Runs of 2 images would be padded to batches of 4."""
    path = batch_size_model.save(folder / "whole", batch_max=4, allowed_batch_sizes="2,4", rows_per_run=2)
    with loaded(path) as run:
        assert [4.0] * 8 == sizes(run("pixels", pixels(*range(8))))


def test_a_request_of_bad_images_alone_returns_their_errors(hasty: Loaded) -> None:
    outputs = hasty("top_k", [b"", b"x", b"", b"x", b""])
    assert [False] * 5 == outputs["ok"].tolist()
    assert [b"empty: no bytes were sent"] * 3 == outputs["error"][::2].tolist()


def queue_name(recipe: Recipe, weight: float = 1.0) -> bytes:
    """Return the name of the queue of a network with a recipe and a weight."""
    network = batch_size_model.Network(weight)
    spec = tf.TensorSpec([None, batch_size_model.SIDE, batch_size_model.SIDE, 3])
    joined = batch_calls(tf.function(network, autograph=False).get_concrete_function(spec), network.variables, recipe)
    (node,) = [node for node in joined.graph.as_graph_def().node if node.op == "BatchFunction"]
    name: bytes = node.attr["shared_name"].s
    return name


def test_a_queue_belongs_to_one_network(recipe_of: Callable[..., Recipe]) -> None:
    """If graphs share resources, queues of the same name are joined, and one network computes for all callers."""
    name = queue_name(recipe_of(batch_max=3))
    assert name != queue_name(recipe_of(batch_max=3), weight=2.0)
    assert name != queue_name(recipe_of(batch_max=4))


def test_all_signatures_have_one_queue(patient: Path) -> None:
    (meta_graph,) = schema.SavedModel.FromString((patient / "saved_model.pb").read_bytes()).meta_graphs
    functions = meta_graph.graph_def.library.function
    (batch,) = [node for function in functions for node in function.node_def if node.op == "BatchFunction"]
    assert 3 == batch.attr["allowed_batch_sizes"].list.i[-1]


def test_two_loaded_versions_do_not_share_batches(run_patient: Loaded, patient: Path) -> None:
    """Even with the same network: a batch of three has the callers of one version."""
    with loaded(patient) as another:
        results = run_concurrently(
            lambda: run_patient("pixels", pixels(255)),
            lambda: another("pixels", pixels(51, 51)),
            lambda: run_patient("pixels", pixels(255, 255)),
            lambda: another("pixels", pixels(51)),
        )
    assert [1.0, 0.2, 1.0, 0.2] == pytest.approx([by_class(outputs)[0, 0] for outputs in results], abs=1e-5)
    assert [3.0] * 4 == [sizes(outputs)[0] for outputs in results]
