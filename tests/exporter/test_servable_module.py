"""The servable: every signature, on a network whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from session import Loaded, loaded

from savedmodel_bakery.exporter.errors import LabelError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.wire import schema

Encode = Callable[..., bytes]
RecipeOf = Callable[..., Recipe]
NAMES = ["red", "grün", "blue"]
SIDE = 8


def network(activation: str | None = None) -> Any:
    """A Keras model that answers with the mean of each channel."""
    image = keras.Input((SIDE, SIDE, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    model = keras.Model(image, keras.layers.Dense(3, activation=activation)(pooled))
    model.set_weights([np.eye(3, dtype=np.float32), np.zeros(3, np.float32)])
    return model


@pytest.fixture(scope="module")
def servable_of(recipe_of: RecipeOf) -> Callable[..., ServableModule]:
    """A servable of the network; keywords change its recipe."""
    model = network()

    def servable_of(**changes: Any) -> ServableModule:
        return ServableModule(model, recipe_of(**{"size": (SIDE, SIDE), "scale": "0..1", **changes}), NAMES)

    return servable_of


@pytest.fixture(scope="module")
def saved(servable_of: Callable[..., ServableModule], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("servable") / "saved"
    servable_of().save(path)
    return path


@pytest.fixture(scope="module")
def ask(saved: Path) -> Iterator[Loaded]:
    with loaded(saved) as ask:
        yield ask


def of_colour(red: int, green: int, blue: int) -> Image.Image:
    return Image.new("RGB", (20, 30), (red, green, blue))


@pytest.fixture(scope="module")
def images(encode: Encode) -> list[bytes]:
    """A green, a bad and a blue image."""
    return [encode(of_colour(51, 204, 0), "PNG"), b"", encode(of_colour(51, 102, 255), "PNG")]


def examples(contents: list[bytes], feature: str = "image/encoded") -> list[bytes]:
    return [
        tf.train.Example(
            features=tf.train.Features(
                feature={feature: tf.train.Feature(bytes_list=tf.train.BytesList(value=[content]))}
            )
        ).SerializeToString()
        for content in contents
    ]


def text(array: np.ndarray) -> Any:
    """A string array as nested lists of str."""
    return np.char.decode(array.astype("S"), "utf-8").tolist()


PREDICT, CLASSIFY = "tensorflow/serving/predict", "tensorflow/serving/classify"
IMAGE = {"image": ("string", [-1])}
VERDICT = {"ok": ("bool", [-1]), "error": ("string", [-1])}
BEST = {
    "labels": ("string", [-1, 3]),
    "scores": ("float32", [-1, 3]),
    "class_ids": ("int32", [-1, 3]),
    **VERDICT,
}
SIGNATURES = {
    "serving_default": (PREDICT, IMAGE, {"output_0": ("string", [-1])}),
    "top_k": (PREDICT, IMAGE, BEST),
    "classify": (
        CLASSIFY,
        {"inputs": ("string", [-1])},
        {"classes": ("string", [-1, 3]), "scores": ("float32", [-1, 3])},
    ),
    "pixels": (PREDICT, {"pixels": ("uint8", [-1, SIDE, SIDE, 3])}, BEST),
    "preprocess": (PREDICT, IMAGE, {"pixels": ("float32", [-1, SIDE, SIDE, 3]), **VERDICT}),
    "preview": (PREDICT, IMAGE, {"png_bytes": ("string", [-1]), **VERDICT}),
}


@pytest.fixture(scope="module")
def meta_graph(saved: Path) -> Any:
    """What stands in the file, read without TensorFlow."""
    (meta_graph,) = schema.SavedModel.FromString((saved / "saved_model.pb").read_bytes()).meta_graphs
    return meta_graph


def described(infos: Any) -> dict[str, tuple[str, list[int]]]:
    return {
        alias: (tf.dtypes.as_dtype(info.dtype).name, [dim.size for dim in info.tensor_shape.dim])
        for alias, info in infos.items()
    }


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_has_its_method_names_types_and_shapes(meta_graph: Any, name: str) -> None:
    method, inputs, outputs = SIGNATURES[name]
    signature = meta_graph.signature_def[name]
    assert method == signature.method_name
    for expected, infos in ((inputs, signature.inputs), (outputs, signature.outputs)):
        assert expected == described(infos)


def test_there_is_no_other_signature(meta_graph: Any) -> None:
    assert {*SIGNATURES, "__saved_model_init_op"} == set(meta_graph.signature_def)


def test_graph_needs_nothing_that_a_stock_server_lacks(meta_graph: Any) -> None:
    """No Python callback, and no XLA, which tensorflow_model_server refuses unless asked."""
    functions = meta_graph.graph_def.library.function
    nodes = [*meta_graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    assert {"DecodeJpeg", "TopKV2"} <= {node.op for node in nodes}
    assert not {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch"} & {node.op for node in nodes}
    assert "BatchFunction" not in {node.op for node in nodes}  # unless the recipe wants it
    assert not any(attribute.b for node in nodes for name, attribute in node.attr.items() if name == "_XlaMustCompile")


def test_what_an_image_may_need_is_made_ready_when_it_is_needed(meta_graph: Any) -> None:
    """TensorFlow's optimiser leaves alone, and doesn't inline, what decodes; the network is not among that."""
    functions = meta_graph.graph_def.library.function
    late = [function for function in functions if function.attr["_tf_data_function"].b]
    ops = {node.op for function in late for node in function.node_def}
    assert {"DecodeJpeg", "DecodeImage", "DecodeBase64", "ResizeBilinear", "StatelessCase", "StatelessIf"} <= ops
    assert not {"MatMul", "TopKV2"} & ops
    assert not any(node.attr["_lower_using_switch_merge"].b for function in late for node in function.node_def)


def test_images_are_read_on_the_cpu_and_the_network_goes_where_the_runtime_puts_it(meta_graph: Any) -> None:
    nodes = [node for function in meta_graph.graph_def.library.function for node in function.node_def]

    def devices(op: str) -> list[str]:
        return [node.device for node in nodes if node.op == op]

    assert ["/device:CPU:*"] == devices("While")  # over images; what is in a loop runs where the loop does
    assert [""] == devices("MatMul")


def test_only_the_network_s_variables_are_saved(saved: Path) -> None:
    names = [name for name, _ in tf.train.list_variables(str(saved / "variables" / "variables"))]
    assert 2 == len([name for name in names if name != "_CHECKPOINTABLE_OBJECT_GRAPH"])


def test_serving_default_answers_with_the_best_label(ask: Loaded, images: list[bytes]) -> None:
    assert ["grün", "blue"] == text(ask("serving_default", [images[0], images[2]])["output_0"])


def test_top_k_lists_labels_with_scores_best_first(ask: Loaded, images: list[bytes]) -> None:
    """The colours are 51, 204, 0 and 51, 102, 255 of 255; of 5 labels asked for there are 3."""
    found = ask("top_k", [images[0], images[2]])
    assert [["grün", "red", "blue"], ["blue", "grün", "red"]] == text(found["labels"])
    np.testing.assert_allclose(found["scores"], [[0.8, 0.2, 0], [1, 0.4, 0.2]], atol=1e-6)
    assert [[1, 0, 2], [2, 1, 0]] == found["class_ids"].tolist()
    assert [True, True] == found["ok"].tolist()
    assert ["", ""] == text(found["error"])


def test_a_bad_image_in_top_k_fails_alone(ask: Loaded, images: list[bytes]) -> None:
    found = ask("top_k", images)
    assert [True, False, True] == found["ok"].tolist()
    assert ["", "empty: no bytes were sent", ""] == text(found["error"])
    assert ["", "", ""] == text(found["labels"])[1]
    assert [0.0, 0.0, 0.0] == found["scores"][1].tolist()
    assert [-1, -1, -1] == found["class_ids"][1].tolist()
    for row in (0, 2):
        alone = ask("top_k", [images[row]])
        for alias, array in found.items():
            np.testing.assert_array_equal(alone[alias], array[row : row + 1])


@pytest.mark.parametrize("signature", ["serving_default", "classify"])
def test_a_signature_without_room_for_errors_refuses_the_request(
    ask: Loaded, images: list[bytes], signature: str
) -> None:
    """INVALID_ARGUMENT names the first bad row and its reason."""
    content = [images[0], images[1], b"?", images[2]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="image 1 is empty: no bytes were sent"):
        ask(signature, examples(content) if signature == "classify" else content)


def test_classify_takes_examples(ask: Loaded, images: list[bytes]) -> None:
    found = ask("classify", examples([images[2], images[0]]))
    assert [["blue", "grün", "red"], ["grün", "red", "blue"]] == text(found["classes"])
    np.testing.assert_allclose(found["scores"], [[1, 0.4, 0.2], [0.8, 0.2, 0]], atol=1e-6)


def test_classify_refuses_an_example_without_an_image(ask: Loaded, images: list[bytes]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image/encoded"):
        ask("classify", examples([images[0]], feature="photo"))


def test_pixels_takes_arrays(ask: Loaded) -> None:
    found = ask("pixels", np.full((2, SIDE, SIDE, 3), (51, 204, 0), np.uint8))
    assert [["grün", "red", "blue"]] * 2 == text(found["labels"])
    np.testing.assert_allclose(found["scores"], [[0.8, 0.2, 0]] * 2, atol=1e-6)
    assert [True, True] == found["ok"].tolist()
    assert ["", ""] == text(found["error"])


def test_preprocess_gives_pixels_before_normalising(ask: Loaded, images: list[bytes]) -> None:
    found = ask("preprocess", images)
    colours = np.array([[51, 204, 0], [0, 0, 0], [51, 102, 255]], np.float32)
    expected = np.broadcast_to(colours[:, np.newaxis, np.newaxis], (3, SIDE, SIDE, 3))
    np.testing.assert_allclose(found["pixels"], expected, atol=1e-4)
    assert [True, False, True] == found["ok"].tolist()
    assert ["", "empty: no bytes were sent", ""] == text(found["error"])


def test_preview_gives_the_same_as_a_picture(ask: Loaded, images: list[bytes]) -> None:
    found = ask("preview", images)
    for row, colour in ((0, (51, 204, 0)), (2, (51, 102, 255))):
        picture = tf.io.decode_png(found["png_bytes"][row]).numpy()
        np.testing.assert_array_equal(np.full((SIDE, SIDE, 3), colour, np.uint8), picture)
    assert b"" == found["png_bytes"][1]
    assert [True, False, True] == found["ok"].tolist()


@pytest.mark.parametrize("name", SIGNATURES)
def test_an_empty_batch_gives_empty_outputs(ask: Loaded, name: str) -> None:
    _, _, outputs = SIGNATURES[name]
    empty = np.zeros((0, SIDE, SIDE, 3), np.uint8) if name == "pixels" else np.array([], object)
    found = ask(name, empty)
    assert {alias: (0, *shape[1:]) for alias, (_, shape) in outputs.items()} == {
        alias: array.shape for alias, array in found.items()
    }


def scores_by_id(servable: ServableModule, colour: tuple[float, float, float]) -> list[float]:
    """Scores of one image of one colour, in the order of class ids."""
    found = servable.pixels(tf.constant(np.full((1, SIDE, SIDE, 3), colour, np.float32)))
    order = np.argsort(found["class_ids"].numpy()[0])
    scores: list[float] = found["scores"].numpy()[0][order].tolist()
    return scores


RECIPES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "0..1": ({}, [0.2, 0.4, 0.6]),
    "BGR": ({"channels": "BGR"}, [0.6, 0.4, 0.2]),
    "mean and deviation": ({"scale": "1,2,3:50,100,75"}, [1.0, 1.0, 2.0]),
    "BGR, mean and deviation": ({"scale": "1,2,3:50,100,75", "channels": "BGR"}, [2.0, 1.0, 1.0]),
    "logits": (
        {"outputs": "logits", "scale": f"0:{51 / np.log(2)}"},  # the logits are log 2, 2 log 2, 3 log 2
        [2 / 14, 4 / 14, 8 / 14],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), RECIPES.values(), ids=RECIPES)
def test_the_network_sees_what_the_recipe_says(
    servable_of: Callable[..., ServableModule], changes: dict[str, Any], expected: list[float]
) -> None:
    assert expected == pytest.approx(scores_by_id(servable_of(**changes), (51, 102, 153)), abs=1e-6)


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])
def test_top_k_is_no_more_than_there_are_classes(servable_of: Callable[..., ServableModule], top_k: int) -> None:
    servable = servable_of(top_k=top_k)
    found = servable.pixels(tf.zeros([1, SIDE, SIDE, 3]))
    assert (1, min(top_k, 3)) == found["labels"].shape


def test_scores_are_float32_whatever_the_network_computes_in(recipe_of: RecipeOf) -> None:
    """Clients are promised float32; a network under mixed precision may end in float16."""
    model = network()
    servable = ServableModule(lambda pixels: tf.cast(model(pixels), tf.float16), recipe_of(size=(SIDE, SIDE)), NAMES)
    found = servable.pixels(tf.fill([1, SIDE, SIDE, 3], 255.0))
    assert tf.float32 == found["scores"].dtype
    assert [1.0, 1.0, 1.0] == found["scores"].numpy()[0].tolist()


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"]], ids=["too few", "too many"])
def test_names_that_do_not_fit_the_network_are_refused(recipe_of: RecipeOf, names: list[str]) -> None:
    with pytest.raises(LabelError, match=f"the network has 3 classes, but labels 'names.txt' hold {len(names)}"):
        ServableModule(network(), recipe_of(size=(SIDE, SIDE)), names)
