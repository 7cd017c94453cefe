"""The exported module: every signature, with a network whose outputs are easy to compute by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tf1_session import Loaded, loaded

from savedmodel_bakery.errors import LabelError
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.runtimes.tf_session import SavedModel
from savedmodel_bakery.wire import dtypes, schema
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor

Encode = Callable[..., bytes]
RecipeOf = Callable[..., Recipe]
NAMES = ["red", "grün", "blue"]
SIDE = 8


def network(activation: str | None = None) -> Any:
    """A Keras model that returns the mean of each channel."""
    image = keras.Input((SIDE, SIDE, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    model = keras.Model(image, keras.layers.Dense(3, activation=activation)(pooled))
    model.set_weights([np.eye(3, dtype=np.float32), np.zeros(3, np.float32)])
    return model


@pytest.fixture(scope="module")
def servable_with(recipe_of: RecipeOf) -> Callable[..., ServableModule]:
    """Make the servable module of the network; keywords change its recipe."""
    model = network()

    def servable_with(**changes: Any) -> ServableModule:
        return ServableModule(model, recipe_of(**{"size": (SIDE, SIDE), "scale": "0..1", **changes}), NAMES)

    return servable_with


@pytest.fixture(scope="module")
def saved(servable_with: Callable[..., ServableModule], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("servable") / "saved"
    servable_with().save(path)
    return path


@pytest.fixture(scope="module")
def run(saved: Path) -> Iterator[Loaded]:
    with loaded(saved) as run:
        yield run


def image_of_colour(red: int, green: int, blue: int) -> Image.Image:
    return Image.new("RGB", (20, 30), (red, green, blue))


@pytest.fixture(scope="module")
def images(encode: Encode) -> list[bytes]:
    """A green, a bad and a blue image."""
    return [encode(image_of_colour(51, 204, 0), "PNG"), b"", encode(image_of_colour(51, 102, 255), "PNG")]


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
    """Decode a string array to nested lists of str."""
    return np.char.decode(array.astype("S"), "utf-8").tolist()


PREDICT, CLASSIFY = "tensorflow/serving/predict", "tensorflow/serving/classify"
IMAGE = {"image": ("string", [-1])}
ERRORS = {"ok": ("bool", [-1]), "error": ("string", [-1])}
TOP_K = {
    "labels": ("string", [-1, 3]),
    "scores": ("float32", [-1, 3]),
    "class_ids": ("int32", [-1, 3]),
    **ERRORS,
}
SIGNATURES = {
    "serving_default": (PREDICT, IMAGE, {"output_0": ("string", [-1])}),
    "top_k": (PREDICT, IMAGE, TOP_K),
    "classify": (
        CLASSIFY,
        {"inputs": ("string", [-1])},
        {"classes": ("string", [-1, 3]), "scores": ("float32", [-1, 3])},
    ),
    "pixels": (PREDICT, {"pixels": ("uint8", [-1, SIDE, SIDE, 3])}, TOP_K),
    "preprocess": (PREDICT, IMAGE, {"pixels": ("float32", [-1, SIDE, SIDE, 3]), **ERRORS}),
    "preview": (PREDICT, IMAGE, {"png_bytes": ("string", [-1]), **ERRORS}),
}


@pytest.fixture(scope="module")
def meta_graph(saved: Path) -> Any:
    """The content of the file, parsed without TensorFlow."""
    (meta_graph,) = schema.SavedModel.FromString((saved / "saved_model.pb").read_bytes()).meta_graphs
    return meta_graph


def dtypes_and_shapes(infos: Any) -> dict[str, tuple[str, list[int]]]:
    return {
        alias: (tf.dtypes.as_dtype(info.dtype).name, [dim.size for dim in info.tensor_shape.dim])
        for alias, info in infos.items()
    }


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_has_its_method_aliases_dtypes_and_shapes(meta_graph: Any, name: str) -> None:
    method, inputs, outputs = SIGNATURES[name]
    signature = meta_graph.signature_def[name]
    assert method == signature.method_name
    for expected, infos in ((inputs, signature.inputs), (outputs, signature.outputs)):
        assert expected == dtypes_and_shapes(infos)


def test_there_is_no_other_signature(meta_graph: Any) -> None:
    assert {*SIGNATURES, "__saved_model_init_op"} == set(meta_graph.signature_def)


def test_graph_runs_on_a_stock_server(meta_graph: Any) -> None:
    """It has no Python callbacks, and no XLA, which tensorflow_model_server refuses by default."""
    functions = meta_graph.graph_def.library.function
    nodes = [*meta_graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    assert {"DecodeJpeg", "TopKV2"} <= {node.op for node in nodes}
    assert not {"PyFunc", "PyFuncStateless", "EagerPyFunc", "XlaLaunch"} & {node.op for node in nodes}
    assert "BatchFunction" not in {node.op for node in nodes}  # unless the recipe sets batch_max
    assert not any(attribute.b for node in nodes for name, attribute in node.attr.items() if name == "_XlaMustCompile")


def test_image_functions_are_prepared_when_they_first_run(meta_graph: Any) -> None:
    """TensorFlow's optimiser neither changes nor inlines functions that decode images, unlike the network."""
    functions = meta_graph.graph_def.library.function
    lazy = [function for function in functions if function.attr["_tf_data_function"].b]
    ops = {node.op for function in lazy for node in function.node_def}
    assert {"DecodeJpeg", "DecodeImage", "DecodeBase64", "ResizeBilinear", "StatelessCase", "StatelessIf"} <= ops
    assert not {"MatMul", "TopKV2"} & ops
    assert not any(node.attr["_lower_using_switch_merge"].b for function in lazy for node in function.node_def)


def test_images_are_read_on_the_cpu_and_the_network_has_no_fixed_device(meta_graph: Any) -> None:
    nodes = [node for function in meta_graph.graph_def.library.function for node in function.node_def]

    def devices(op: str) -> list[str]:
        return [node.device for node in nodes if node.op == op]

    # The loop over images, whose body runs where the loop does. Other loops are inside it, or over runs of the network.
    assert {"", "/device:CPU:*"} == {*devices("While"), *devices("StatelessWhile")}
    assert 1 == devices("While").count("/device:CPU:*")
    assert [""] == devices("MatMul")


def test_only_the_variables_of_the_network_are_saved(saved: Path) -> None:
    """The kernel of its dense layer; the bias is a constant."""
    names = [name for name, _ in tf.train.list_variables(str(saved / "variables" / "variables"))]
    assert 1 == len([name for name in names if name != "_CHECKPOINTABLE_OBJECT_GRAPH"])


def test_serving_default_returns_the_best_label(run: Loaded, images: list[bytes]) -> None:
    assert ["grün", "blue"] == text(run("serving_default", [images[0], images[2]])["output_0"])


def test_top_k_lists_labels_with_scores_best_first(run: Loaded, images: list[bytes]) -> None:
    """The colours are 51, 204, 0 and 51, 102, 255 of 255; the default of 5 labels is reduced to 3."""
    outputs = run("top_k", [images[0], images[2]])
    assert [["grün", "red", "blue"], ["blue", "grün", "red"]] == text(outputs["labels"])
    np.testing.assert_allclose(outputs["scores"], [[0.8, 0.2, 0], [1, 0.4, 0.2]], atol=1e-6)
    assert [[1, 0, 2], [2, 1, 0]] == outputs["class_ids"].tolist()
    assert [True, True] == outputs["ok"].tolist()
    assert ["", ""] == text(outputs["error"])


def test_a_bad_image_in_top_k_does_not_affect_others(run: Loaded, images: list[bytes]) -> None:
    outputs = run("top_k", images)
    assert [True, False, True] == outputs["ok"].tolist()
    assert ["", "empty: no bytes were sent", ""] == text(outputs["error"])
    assert ["", "", ""] == text(outputs["labels"])[1]
    assert [0.0, 0.0, 0.0] == outputs["scores"][1].tolist()
    assert [-1, -1, -1] == outputs["class_ids"][1].tolist()
    for row in (0, 2):
        alone = run("top_k", [images[row]])
        for alias, array in outputs.items():
            np.testing.assert_array_equal(alone[alias], array[row : row + 1])


@pytest.fixture(scope="module")
def servable(saved: Path) -> SavedModel:
    """Runs it as the embedded server does; Python's Session would compare shapes itself, which servers don't."""
    return SavedModel(saved)


@pytest.mark.parametrize("name", SIGNATURES)
def test_other_shapes_are_errors_that_state_what_was_sent_and_what_is_allowed(servable: SavedModel, name: str) -> None:
    signature = servable.signatures[name]
    ((alias, info),) = signature.inputs.items()
    if name == "pixels":
        shapes, expected, dtype = [(1, 3, 8, 8), (4, 4, 4, 3), (2, 192), (8, 8, 3), (0, 1, 1, 1)], "[?,8,8,3]", "uint8"
    else:
        shapes, expected, dtype = [(2, 1), (), (0, 1)], "[?]", "string"
    for shape in shapes:
        array = np.zeros(shape, np.uint8) if name == "pixels" else np.full(shape, b"", object)
        message = rf"{alias}\S* {re.escape(str([*shape]).replace(' ', ''))} is not compatible with expected shape "
        with pytest.raises(StatusError, match=f"^INVALID_ARGUMENT: Shape of tensor .*{message}{re.escape(expected)}"):
            servable.run(
                {info.name: Tensor(array, dtypes.BY_NAME[dtype])},
                [output.name for output in signature.outputs.values()],
                RequestContext(),
            )


@pytest.mark.parametrize("signature", ["serving_default", "classify"])
def test_a_signature_without_error_output_fails_on_a_bad_image(
    run: Loaded, images: list[bytes], signature: str
) -> None:
    """INVALID_ARGUMENT names the first bad image and its error."""
    content = [images[0], images[1], b"?", images[2]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="image 1 is empty: no bytes were sent"):
        run(signature, examples(content) if signature == "classify" else content)


def test_classify_accepts_examples(run: Loaded, images: list[bytes]) -> None:
    outputs = run("classify", examples([images[2], images[0]]))
    assert [["blue", "grün", "red"], ["grün", "red", "blue"]] == text(outputs["classes"])
    np.testing.assert_allclose(outputs["scores"], [[1, 0.4, 0.2], [0.8, 0.2, 0]], atol=1e-6)


def test_classify_rejects_an_example_without_an_image(run: Loaded, images: list[bytes]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="image/encoded"):
        run("classify", examples([images[0]], feature="photo"))


def test_pixels_accepts_arrays(run: Loaded) -> None:
    outputs = run("pixels", np.full((2, SIDE, SIDE, 3), (51, 204, 0), np.uint8))
    assert [["grün", "red", "blue"]] * 2 == text(outputs["labels"])
    np.testing.assert_allclose(outputs["scores"], [[0.8, 0.2, 0]] * 2, atol=1e-6)
    assert [True, True] == outputs["ok"].tolist()
    assert ["", ""] == text(outputs["error"])


def test_preprocess_returns_pixels_before_normalising(run: Loaded, images: list[bytes]) -> None:
    outputs = run("preprocess", images)
    colours = np.array([[51, 204, 0], [0, 0, 0], [51, 102, 255]], np.float32)
    expected = np.broadcast_to(colours[:, np.newaxis, np.newaxis], (3, SIDE, SIDE, 3))
    np.testing.assert_allclose(outputs["pixels"], expected, atol=1e-4)
    assert [True, False, True] == outputs["ok"].tolist()
    assert ["", "empty: no bytes were sent", ""] == text(outputs["error"])


def test_preview_returns_the_same_pixels_as_png_files(run: Loaded, images: list[bytes]) -> None:
    outputs = run("preview", images)
    for row, colour in ((0, (51, 204, 0)), (2, (51, 102, 255))):
        picture = tf.io.decode_png(outputs["png_bytes"][row]).numpy()
        np.testing.assert_array_equal(np.full((SIDE, SIDE, 3), colour, np.uint8), picture)
    assert b"" == outputs["png_bytes"][1]
    assert [True, False, True] == outputs["ok"].tolist()


@pytest.mark.parametrize("name", SIGNATURES)
def test_an_empty_batch_has_empty_outputs(run: Loaded, name: str) -> None:
    _, _, expected = SIGNATURES[name]
    empty = np.zeros((0, SIDE, SIDE, 3), np.uint8) if name == "pixels" else np.array([], object)
    outputs = run(name, empty)
    assert {alias: (0, *shape[1:]) for alias, (_, shape) in expected.items()} == {
        alias: array.shape for alias, array in outputs.items()
    }


def scores_by_id(servable: ServableModule, colour: tuple[int, int, int]) -> list[float]:
    """Return the scores of an image of one colour, in the order of class ids."""
    outputs = servable.functions["pixels"](tf.constant(np.full((1, SIDE, SIDE, 3), colour, np.uint8)))
    order = np.argsort(outputs["class_ids"].numpy()[0])
    scores: list[float] = outputs["scores"].numpy()[0][order].tolist()
    return scores


RECIPES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "0..1": ({}, [0.2, 0.4, 0.6]),
    "BGR": ({"channels": "BGR"}, [0.6, 0.4, 0.2]),
    "mean and standard deviation": ({"scale": "1,2,3:50,100,75"}, [1.0, 1.0, 2.0]),
    "BGR, mean and standard deviation": ({"scale": "1,2,3:50,100,75", "channels": "BGR"}, [2.0, 1.0, 1.0]),
    "logits": (
        {"outputs": "logits", "scale": f"0:{51 / np.log(2)}"},  # the logits are log 2, 2 log 2, 3 log 2
        [2 / 14, 4 / 14, 8 / 14],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), RECIPES.values(), ids=RECIPES)
def test_the_network_receives_pixels_normalised_by_the_recipe(
    servable_with: Callable[..., ServableModule], changes: dict[str, Any], expected: list[float]
) -> None:
    assert expected == pytest.approx(scores_by_id(servable_with(**changes), (51, 102, 153)), abs=1e-6)


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])
def test_top_k_is_limited_to_the_number_of_classes(servable_with: Callable[..., ServableModule], top_k: int) -> None:
    servable = servable_with(top_k=top_k)
    outputs = servable.functions["pixels"](tf.zeros([1, SIDE, SIDE, 3], tf.uint8))
    assert (1, min(top_k, 3)) == outputs["labels"].shape


def test_scores_are_float32_for_any_precision_of_the_network(recipe_of: RecipeOf) -> None:
    """A network with mixed precision may return float16; the signature states float32."""
    model = network()
    servable = ServableModule(lambda pixels: tf.cast(model(pixels), tf.float16), recipe_of(size=(SIDE, SIDE)), NAMES)
    outputs = servable.functions["pixels"](tf.fill([1, SIDE, SIDE, 3], tf.constant(255, tf.uint8)))
    assert tf.float32 == outputs["scores"].dtype
    assert [1.0, 1.0, 1.0] == outputs["scores"].numpy()[0].tolist()


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "c", "d"]], ids=["too few", "too many"])
def test_a_wrong_number_of_class_names_is_rejected(recipe_of: RecipeOf, names: list[str]) -> None:
    with pytest.raises(LabelError, match=f"the network has 3 classes, but labels 'names.txt' have {len(names)}"):
        ServableModule(network(), recipe_of(size=(SIDE, SIDE)), names)


@pytest.fixture(scope="module")
def run_in_twos(
    servable_with: Callable[..., ServableModule], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    """The same servable, whose network runs on at most two images at a time."""
    path = tmp_path_factory.mktemp("twos") / "saved"
    servable_with(rows_per_run=2, max_pixels=40 * 30).save(path)
    with loaded(path) as run:
        yield run


@pytest.fixture(scope="module")
def many(images: list[bytes], encode: Encode) -> list[bytes]:
    """Images of five runs, with bad ones before, between, within and after them."""
    green, empty, blue = images
    too_large = encode(Image.new("RGB", (41, 30)), "PNG")
    return [empty, green, b"?", too_large, blue, blue, green, *[b"?"] * 5, green, empty, blue, green, blue[:-20], empty]


@pytest.mark.parametrize("signature", ["top_k", "preprocess", "preview"])
def test_rows_of_several_runs_have_the_outputs_of_single_calls(
    run_in_twos: Loaded, many: list[bytes], signature: str
) -> None:
    outputs = run_in_twos(signature, many)
    alone = [run_in_twos(signature, [image]) for image in many]
    assert 7 == outputs["ok"].sum()
    for alias, array in outputs.items():
        np.testing.assert_array_equal(np.concatenate([single[alias] for single in alone]), array)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_pixels_of_several_runs_have_the_outputs_of_single_calls(run_in_twos: Loaded, rows: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (rows, SIDE, SIDE, 3), np.uint8)
    outputs = run_in_twos("pixels", pixels)
    for row in range(rows):
        for alias, array in run_in_twos("pixels", pixels[row : row + 1]).items():
            np.testing.assert_array_equal(array, outputs[alias][row : row + 1])


@pytest.mark.parametrize("signature", ["serving_default", "classify"])
@pytest.mark.parametrize("row", [1, 4, 5])
def test_the_error_names_the_row_of_the_request(
    run_in_twos: Loaded, images: list[bytes], signature: str, row: int
) -> None:
    """Not the row of the run."""
    content = [images[0]] * 8
    content[row], content[7] = b"?", b""
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"image {row} is neither base64"):
        run_in_twos(signature, examples(content) if signature == "classify" else content)


def test_images_are_never_rejected_because_of_others(run_in_twos: Loaded, images: list[bytes]) -> None:
    """Together they have more pixels than a single image may have."""
    outputs = run_in_twos("serving_default", [images[0], images[2]] * 4)
    assert ["grün", "blue"] * 4 == text(outputs["output_0"])


def test_preprocess_rejects_more_images_than_its_output_can_have(run_in_twos: Loaded) -> None:
    """A row of its output takes memory even if the image is empty."""
    most = 40 * 30 // SIDE**2
    assert [False] * most == run_in_twos("preprocess", [b""] * most)["ok"].tolist()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"too many images .* at most {most}"):
        run_in_twos("preprocess", [b""] * (most + 1))
