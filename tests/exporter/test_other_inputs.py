"""A network with a second image, numbers, text and an id: all are inputs of its signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mixed_networks
import numpy as np
import pytest
import tensorflow as tf
from mixed_networks import LABELS, SECOND_SIDES, SIDE, expected_scores
from PIL import Image
from tf1_session import Loaded, loaded

from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.sources.network import from_keras_model

COLOURS = [(255, 0, 51), (0, 0, 0), (0, 0, 0), (0, 204, 255), (51, 51, 51)]
SECOND_COLOURS = [(51, 0, 51), (255, 0, 0), (255, 0, 0), (0, 0, 0), (153, 51, 0)]
GOOD = [0, 4]  # of the first images the second is bad, of the second ones the fourth, and the third is empty
OTHERS: dict[str, np.ndarray] = {
    "tab": np.array([[0, 1], [0, 0], [0, 0], [0, 0], [2, -1]], np.float32),
    "text": np.array([b"a", b"a", b"a", b"a", b"b"], object),
    "store": np.array([[1], [0], [0], [0], [2]], np.int32),
}


@pytest.fixture(scope="module")
def model() -> Any:
    return mixed_networks.pairs()


@pytest.fixture(scope="module")
def run(model: Any, recipe_of: Callable[..., Recipe], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    network = from_keras_model(model, "pairs", source_input="left,right")
    second = {**network.recipe["image_2"], "channels": "BGR"}
    recipe = recipe_of(**{**network.recipe, "image_2": second, "outputs": "logits", "rows_per_run": 2})
    path = tmp_path_factory.mktemp("pairs") / "saved"
    ServableModule(network.call, recipe, LABELS, others=network.others, tables=network.tables).save(path)
    with loaded(path) as run:
        yield run


@pytest.fixture(scope="module")
def expected(model: Any) -> np.ndarray:
    """The scores of the model itself, best first."""
    seconds = [(blue, green, red) for red, green, blue in SECOND_COLOURS]
    return np.sort(expected_scores(model, COLOURS, seconds, OTHERS), axis=1)[:, ::-1]


def files(encode: Callable[..., bytes], colours: list[tuple[int, int, int]], bad: dict[int, bytes]) -> np.ndarray:
    contents = [encode(Image.new("RGB", (20, 30), colour), "PNG") for colour in colours]
    return np.array([bad.get(place, content) for place, content in enumerate(contents)], object)


@pytest.fixture(scope="module")
def images(encode: Callable[..., bytes]) -> dict[str, np.ndarray]:
    return {
        "image": files(encode, COLOURS, {1: b"<html>"}),
        "image_2": files(encode, SECOND_COLOURS, {2: b"", 3: b"<html>"}),
    }


def test_a_bad_image_of_a_pair_harms_its_own_row(
    run: Loaded, images: dict[str, np.ndarray], expected: np.ndarray
) -> None:
    outputs = run("top_k", **images, **OTHERS)
    np.testing.assert_allclose(expected[GOOD], outputs["scores"][GOOD], atol=1e-5)
    assert [True, False, False, False, True] == outputs["ok"].tolist()
    not_an_image = b"neither base64 nor a supported image format: it starts with 3c 68 74 6d 6c 3e"
    assert [
        b"",
        not_an_image,
        b"paired with an image_2 that is empty: no bytes were sent",
        b"paired with an image_2 that is " + not_an_image,
        b"",
    ] == outputs["error"].tolist()


def test_no_image_of_a_request_can_be_read(run: Loaded, images: dict[str, np.ndarray]) -> None:
    outputs = run("top_k", **{name: array[1:4] for name, array in (images | OTHERS).items()})
    assert [False] * 3 == outputs["ok"].tolist()


def test_the_label_alone(run: Loaded, images: dict[str, np.ndarray]) -> None:
    good = {name: array[GOOD] for name, array in (images | OTHERS).items()}
    best = run("top_k", **good)["labels"][:, 0]
    assert best.tolist() == run("serving_default", **good)["output_0"].tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match="image 1 is paired with an image_2 that is empty"):
        run("serving_default", **{name: array[[0, 2]] for name, array in (images | OTHERS).items()})


def test_arrays_of_the_networks_size(run: Loaded, expected: np.ndarray) -> None:
    pixels, pixels_2 = (
        np.array(colours, np.uint8)[:, np.newaxis, np.newaxis] + np.zeros((1, *sides, 1), np.uint8)
        for colours, sides in ((COLOURS, (SIDE, SIDE)), (SECOND_COLOURS, SECOND_SIDES))
    )
    outputs = run("pixels", pixels=pixels, pixels_2=pixels_2, **OTHERS)
    np.testing.assert_allclose(expected, outputs["scores"], atol=1e-5)


def test_what_the_network_receives_of_each_image(run: Loaded, images: dict[str, np.ndarray]) -> None:
    for signature, sides, colours in (
        ("preprocess", (SIDE, SIDE), COLOURS),
        ("preprocess_2", SECOND_SIDES, SECOND_COLOURS),
    ):
        (pixels,) = run(signature, image=images["image_2" if signature.endswith("2") else "image"][:1])["pixels"]
        np.testing.assert_allclose(np.broadcast_to(colours[0], (*sides, 3)), pixels)


def test_examples(run: Loaded, images: dict[str, np.ndarray], expected: np.ndarray) -> None:
    """Their features have the names of the inputs."""
    examples = []
    for row in GOOD:
        values = {
            "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[images["image"][row]])),
            "image_2/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[images["image_2"][row]])),
            "tab": tf.train.Feature(float_list=tf.train.FloatList(value=OTHERS["tab"][row])),
            "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[OTHERS["text"][row]])),
            "store": tf.train.Feature(int64_list=tf.train.Int64List(value=OTHERS["store"][row])),
        }
        examples.append(tf.train.Example(features=tf.train.Features(feature=values)).SerializeToString())
    outputs = run("classify", inputs=np.array(examples, object))
    np.testing.assert_allclose(expected[GOOD], outputs["scores"], atol=1e-5)


def test_an_input_must_have_a_row_per_image(run: Loaded, images: dict[str, np.ndarray]) -> None:
    message = r'input \\"tab\\" has 1 rows: must have 5, one per image'
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run("top_k", **images, **{**OTHERS, "tab": OTHERS["tab"][:1]})


def test_layers_of_other_inputs_do_not_hide_what_scales_pixels(model: Any) -> None:
    network = from_keras_model(model, "pairs", source_input="left,right")
    assert "rescaling" in str(network.scaling_layer)
