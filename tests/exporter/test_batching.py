"""Batching in the graph: who shares a run of the network, and that nobody's answer changes by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import telling
import tensorflow as tf
from PIL import Image
from session import Loaded, loaded

from savedmodel_bakery.exporter import batching
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.wire import schema

# Longer than any test: a batch that runs was full.
FOREVER_US = 60_000_000

Encode = Callable[..., bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batching")


@pytest.fixture(scope="module")
def patient(folder: Path) -> Path:
    """A model that waits for three images."""
    return telling.save(folder / "patient", batch_max=3, batch_timeout_us=FOREVER_US)


@pytest.fixture(scope="module")
def ask_patient(patient: Path) -> Iterator[Loaded]:
    with loaded(patient) as ask:
        yield ask


@pytest.fixture(scope="module")
def hasty(folder: Path) -> Iterator[Loaded]:
    """A model that waits for nobody, and fills batches up to 2 or 4."""
    with loaded(telling.save(folder / "hasty", batch_max=4, allowed_batch_sizes="2,4")) as ask:
        yield ask


@pytest.fixture(scope="module")
def green(encode: Encode) -> bytes:
    return encode(Image.new("RGB", (20, 30), (51, 204, 0)), "PNG")


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What calls give that are under way at the same time."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def pixels(*levels: int) -> np.ndarray:
    """Images of one gray level each."""
    return np.repeat(np.array(levels, np.uint8), telling.SIDE**2 * 3).reshape(-1, telling.SIDE, telling.SIDE, 3)


def by_class(found: dict[str, np.ndarray]) -> np.ndarray:
    """Scores in the order of class ids, float32 [batch, classes]; NaN where an answer lists none."""
    scores = np.full((len(found["scores"]), len(telling.CLASSES)), np.nan, np.float32)
    for row, ids, given in zip(scores, found["class_ids"], found["scores"], strict=True):
        row[ids[ids >= 0]] = given[ids >= 0]
    return scores


def sizes(found: dict[str, np.ndarray]) -> list[float]:
    """Of each row, how many were in its batch."""
    listed: list[float] = by_class(found)[:, 3].tolist()
    return listed


def test_callers_of_all_signatures_share_a_run(ask_patient: Loaded, green: bytes) -> None:
    """Each brings one image and waits for two others."""
    top_k, array, default = together(
        lambda: ask_patient("top_k", [green]),
        lambda: ask_patient("pixels", pixels(255)),
        lambda: ask_patient("serving_default", [green]),
    )
    np.testing.assert_allclose(by_class(top_k), [[0.2, 0.8, 0.0, 3.0]], atol=1e-5)
    np.testing.assert_allclose(by_class(array), [[1.0, 1.0, 1.0, 3.0]], atol=1e-5)
    assert [b"together"] == default["output_0"].tolist()


def test_a_bad_image_in_a_batch_harms_nobody(ask_patient: Loaded, green: bytes) -> None:
    good, mixed = together(
        lambda: ask_patient("top_k", [green]),
        lambda: ask_patient("top_k", [b"", green]),
    )
    np.testing.assert_allclose(by_class(good), [[0.2, 0.8, 0.0, 3.0]], atol=1e-5)
    np.testing.assert_allclose(by_class(mixed), [[np.nan] * 4, [0.2, 0.8, 0.0, 3.0]], atol=1e-5)
    assert [False, True] == mixed["ok"].tolist()


def test_a_request_that_is_refused_takes_no_place(ask_patient: Loaded, green: bytes) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image 0 is empty"):
        ask_patient("serving_default", [b"", green])
    assert [3.0, 3.0, 3.0] == sizes(ask_patient("pixels", pixels(0, 1, 2)))


def test_an_empty_request_waits_for_nobody(ask_patient: Loaded) -> None:
    found = ask_patient("top_k", np.array([], object))
    assert (0, 4) == found["scores"].shape
    assert [] == ask_patient("serving_default", np.array([], object))["output_0"].tolist()


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9])
def test_each_row_has_its_own_answer(hasty: Loaded, rows: int) -> None:
    levels = np.arange(1, 20 * rows, 20)
    found = by_class(hasty("pixels", pixels(*levels)))[:, :3]
    np.testing.assert_allclose(found, np.repeat(levels, 3).reshape(-1, 3) / 255, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "expected"), [(1, [2]), (2, [2] * 2), (3, [4] * 3), (4, [4] * 4), (9, [4] * 8 + [2])], ids=str
)
def test_a_request_is_split_and_filled_up_to_allowed_sizes(hasty: Loaded, rows: int, expected: Sequence[float]) -> None:
    assert expected == sizes(hasty("pixels", pixels(*range(rows))))


def test_images_that_are_all_bad_are_answered(hasty: Loaded) -> None:
    found = hasty("top_k", [b"", b"x", b"", b"x", b""])
    assert [False] * 5 == found["ok"].tolist()
    assert [b"empty: no bytes were sent"] * 3 == found["error"][::2].tolist()


def queue(recipe: Recipe, weight: float = 1.0) -> bytes:
    """What the queue is called for which a recipe and a network's weight make the callers wait."""
    network = telling.Network(weight)
    spec = tf.TensorSpec([None, telling.SIDE, telling.SIDE, 3])
    joined = batching.batch(tf.function(network).get_concrete_function(spec), network.variables, recipe)
    (node,) = [node for node in joined.graph.as_graph_def().node if node.op == "BatchFunction"]
    name: bytes = node.attr["shared_name"].s
    return name


def test_a_queue_belongs_to_one_network(recipe_of: Callable[..., Recipe]) -> None:
    """Where graphs share resources, those of one name share a queue, and one's network answers for all."""
    known = queue(recipe_of(batch_max=3))
    assert known != queue(recipe_of(batch_max=3), weight=2.0)
    assert known != queue(recipe_of(batch_max=4))


def test_all_signatures_have_one_queue(patient: Path) -> None:
    (meta_graph,) = schema.SavedModel.FromString((patient / "saved_model.pb").read_bytes()).meta_graphs
    functions = meta_graph.graph_def.library.function
    (batch,) = [node for function in functions for node in function.node_def if node.op == "BatchFunction"]
    assert 3 == batch.attr["allowed_batch_sizes"].list.i[-1]


def test_two_versions_of_a_model_keep_their_callers_apart(ask_patient: Loaded, patient: Path) -> None:
    """Two loaded at once, of the very same network even: a batch of three is made of callers of one."""
    with loaded(patient) as another:
        found = together(
            lambda: ask_patient("pixels", pixels(255)),
            lambda: another("pixels", pixels(51, 51)),
            lambda: ask_patient("pixels", pixels(255, 255)),
            lambda: another("pixels", pixels(51)),
        )
    assert [1.0, 0.2, 1.0, 0.2] == pytest.approx([by_class(answer)[0, 0] for answer in found], abs=1e-5)
    assert [3.0] * 4 == [sizes(answer)[0] for answer in found]
