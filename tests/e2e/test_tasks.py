"""Networks of every task are baked and served."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import shape_models
from PIL import ExifTags, Image
from server_process import ServerProcess

from savedmodel_bakery import AsyncClient, Client, LocalTransport, RequestRefusedError, Tags
from savedmodel_bakery.client.goldens import read_goldens, replay
from savedmodel_bakery.exporter.bake import BakeResult, bake

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
Clients = Callable[[Path], list[Client]]
AskAmqp = Callable[[Path, bytes], dict[str, Any]]
Serve = Callable[[Path], ServerProcess]
REDNESS = 2.0  # the logit of a plain red image, and the negative one of a green image


def picture(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 30), colour).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(
    scope="module",
    params=[
        "logits",
        pytest.param("probabilities", marks=pytest.mark.slow),
        pytest.param("logits without an axis", marks=pytest.mark.slow),
    ],
)
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


def test_one_output_decides_between_two_labels(binary: Path, clients: Clients, serve: Serve) -> None:
    probability = 1 / (1 + np.exp(-REDNESS))
    images = [picture("#f00"), picture("#0f0"), picture("#f80"), b"?"]  # the third one is red with 0.72: below 0.8
    for client in clients(binary):
        *results, bad = client.classify(images)
        assert ["red", "green", "green"] == [result.label for result in results]
        for result, expected in zip(results, (probability, probability, 1 - 0.7177), strict=True):
            assert expected == pytest.approx(result.top[0].score, abs=0.002)
            assert 1.0 == pytest.approx(sum(top.score for top in result.top))
        assert not bad.ok
        outputs = client.predict({"image": np.array(images[:3], object)}).outputs
        assert [b"red", b"green", b"green"] == outputs["output_0"].tolist()
        assert "green" == client.classify(np.array(Image.new("RGB", (8, 8), "#f80"))).label  # by signature pixels
        examples = [{"image/encoded": image} for image in images[:3]]
        assert ["red", "green", "green"] == [row[0][0] for row in client.classify_examples(examples)]
    body = {"instances": [{"b64": base64.b64encode(images[2]).decode()}]}
    url = f"{serve(binary).url}/v1/models/red:predict"
    assert {"predictions": ["green"]} == requests.post(url, json=body, timeout=30).json()


COLOURS = {"red": "#f00", "cyan": "#0ff", "black": "#000", "gray": "#808080"}
MEANS = {"red": [1, 0, 0], "cyan": [0, 1, 1], "black": [0, 0, 0], "gray": [128 / 255] * 3}


def save_network(path: Path, weights: list[list[float]], bias: list[float], activation: str | None = None) -> None:
    """Write a Keras model that computes `weights` times the mean colour, 0..1, plus `bias`."""
    shape_models.colour_network(weights, bias, activation).save(path)


def bake_network(folder: Path, **recipe: object) -> BakeResult:
    (folder / "names.txt").write_text("red\ngreen\nblue\n")
    result = bake(model=str(folder / "network.keras"), name="network", out=folder, recipe={**RECIPE, **recipe})
    assert result.parity.is_within
    return result


def check_goldens(result: BakeResult, client: Client) -> None:
    goldens = read_goldens(result.path)
    signatures = {golden.signature for golden in goldens.requests}
    assert {"serving_default", "pixels", "preprocess", "preview"} <= signatures
    for golden in goldens.requests:
        assert [] == replay(golden, client, goldens.tolerances), golden.signature


def ask(clients: Clients, result: BakeResult, signature: str = "serving_default") -> dict[str, np.ndarray]:
    """Send the pictures in COLOURS and one that is none, and replay the goldens; return the outputs.

    Over REST the same is done, and the same returned.
    """
    images = np.array([*map(picture, COLOURS.values()), b"?"], object)
    answers: list[dict[str, np.ndarray]] = []
    for client in clients(result.path.parent):
        check_goldens(result, client)
        answers.append(dict(client.predict({"image": images}, signature=signature).outputs))
        if "value" in answers[-1]:
            examples = [{"image/encoded": image} for image in images[:-1]]
            assert answers[-1]["value"][:-1].tolist() == pytest.approx(client.regress_examples(examples))
    over_grpc, over_rest = answers
    for alias, array in over_grpc.items():
        np.testing.assert_array_equal(array, over_rest[alias])
    assert [True] * len(COLOURS) + [False] == over_grpc.pop("ok").tolist()
    assert over_grpc.pop("error")[-1].startswith(b"neither base64 nor a supported image format")
    return over_grpc


def plain(colour: str) -> np.ndarray:
    """An array of the networks' input size."""
    return np.array(Image.new("RGB", (8, 8), colour))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> BakeResult:
    """A network with a sigmoid per colour; the task is inferred from it. Green needs more than the others."""
    folder = tmp_path_factory.mktemp("tagger")
    save_network(folder / "network.keras", (8 * np.eye(3)).tolist(), [-4] * 3, "sigmoid")
    options = {"labels": str(folder / "names.txt"), "outputs": "probabilities", "threshold": "0.5,0.6,0.5"}
    result = bake_network(folder, **options)
    assert "multilabel" == result.recipe.answers.task
    return result


def test_an_image_has_any_number_of_labels(tagger: BakeResult, clients: Clients) -> None:
    outputs = ask(clients, tagger)
    red, cyan, black, gray, bad = outputs["labels"].tolist()
    assert ([b"red", b"", b""], [b"green", b"blue", b""]) == (red, cyan)
    assert ([b"", b"", b""], [b"red", b"blue", b""], [b"", b"", b""]) == (black, gray, bad)
    assert [1, 2, 0, 2, 0] == outputs["count"].tolist()
    high, middle = 1 / (1 + np.exp(-4)), 1 / (1 + np.exp(4 - 8 * 128 / 255))
    expected = [[high, 0, 0], [high, high, 0], [0, 0, 0], [middle, middle, 0], [0, 0, 0]]
    np.testing.assert_allclose(expected, outputs["scores"], atol=0.001)
    best = ask(clients, tagger, signature="top_k")
    assert [b"red", b"green", b"blue"] == best["labels"][3].tolist()


@pytest.fixture
def local(tagger: BakeResult) -> Iterator[Client]:
    """Run the tagger in this process."""
    with Client(transport=LocalTransport(tagger.path.parent)) as client:
        yield client


def test_tags_of_images_of_every_type(tagger: BakeResult, clients: Clients, local: Client, tmp_path: Path) -> None:
    cyan = picture("cyan")
    (tmp_path / "cyan.png").write_bytes(cyan)
    photo = Image.open(io.BytesIO(cyan))
    images = [cyan, tmp_path / "cyan.png", str(tmp_path / "cyan.png"), photo, np.array(photo), plain("cyan")]
    score = pytest.approx(1 / (1 + np.exp(-4)), abs=0.001)
    for client in (*clients(tagger.path.parent), local):
        *results, black, bad = client.tags([io.BytesIO(cyan), *images, plain("black"), b"?"])
        assert [("green", score), ("blue", score)] == [(tag.label, tag.score) for tag in results[0].tags]
        labels = [[tag.label for tag in result.tags] for result in results]
        assert [["green", "blue"]] * (1 + len(images)) == labels
        assert Tags(True, None, ()) == black
        assert (False, ()) == (bad.ok, bad.tags)
        assert bad.error is not None
        assert bad.error.startswith("neither base64 nor a supported image format")
        assert results[0] == client.tags(images[0])
        with pytest.raises(RequestRefusedError, match=r"the task of model .* is multilabel: use the method tags"):
            client.detect(cyan)


def test_labels_over_amqp(tagger: BakeResult, ask_amqp: AskAmqp) -> None:
    row = ask_amqp(tagger.path.parent, picture("cyan"))
    assert (["green", "blue", ""], 2) == (row["labels"], row["count"])


def test_the_output_of_a_layer_is_an_embedding(
    tagger: BakeResult, clients: Clients, ask_amqp: AskAmqp, tmp_path: Path
) -> None:
    options = {"task": "embed", "layer": "mean", "normalise": "l2"}
    model = tagger.path.parents[1] / "network.keras"
    result = bake(model=str(model), name="network", out=tmp_path, recipe={**RECIPE, **options})
    assert result.parity.is_within
    vectors = ask(clients, result)["embedding"]
    for client in clients(result.path.parent):
        embeddings = client.embed([*map(picture, COLOURS.values()), b"?"])
        assert embeddings[-1].vector is None
        np.testing.assert_array_equal(vectors[:-1], [embedding.vector for embedding in embeddings[:-1]])
        np.testing.assert_allclose(vectors[1], client.embed(plain("cyan")).vector, atol=1e-3)
    lengths = np.linalg.norm([*MEANS.values(), [0, 0, 0]], axis=1, keepdims=True)
    np.testing.assert_allclose([*MEANS.values(), [0, 0, 0]] / np.maximum(lengths, 1e-9), vectors, atol=1e-3)
    assert pytest.approx([0, 0.7071, 0.7071], abs=1e-3) == ask_amqp(result.path.parent, picture("cyan"))["embedding"]


def test_one_output_without_labels_is_a_number(clients: Clients, ask_amqp: AskAmqp, tmp_path: Path) -> None:
    save_network(tmp_path / "network.keras", [[100, 10, 1]], [1000])
    result = bake_network(tmp_path, units="lumen")
    assert "regress" == result.recipe.answers.task
    values = ask(clients, result)["value"]
    assert [1100, 1011, 1000, 1000 + 111 * 128 / 255, 0] == pytest.approx(values.tolist(), abs=0.01)
    assert {"value": pytest.approx(1011), "ok": True, "error": ""} == ask_amqp(result.path.parent, picture("cyan"))


@pytest.mark.slow
def test_several_numbers_have_names(clients: Clients, tmp_path: Path) -> None:
    save_network(tmp_path / "network.keras", [[1, 0, 0], [0, 2, 0]], [0.5, -1])
    result = bake_network(tmp_path, task="regress", output_names="width,height", units="m,m")
    for client in clients(result.path.parent):
        cyan, bad = client.regress([picture("cyan"), b"?"])
        assert {"width": 0.5, "height": 1} == pytest.approx(dict(cyan.values), abs=1e-3)
        assert ({}, False) == (bad.values, bad.ok)
    outputs = ask(clients, result)
    assert [1.5, 0.5, 0.5, 0.5 + 128 / 255, 0] == pytest.approx(outputs["width"].tolist(), abs=1e-3)
    assert [-1, 1, -1, 2 * 128 / 255 - 1, 0] == pytest.approx(outputs["height"].tolist(), abs=1e-3)


def test_a_network_with_several_heads(clients: Clients, ask_amqp: AskAmqp, serve: Serve, tmp_path: Path) -> None:
    shape_models.two_heads().save(tmp_path / "network.keras")
    colour = {"name": "colour", "task": "classify", "labels": str(tmp_path / "names.txt"), "outputs": "logits"}
    result = bake_network(tmp_path, heads=[{"name": "redness", "task": "regress"}, colour])
    outputs = ask(clients, result)
    np.testing.assert_allclose([255, 0, 0, 128, 0], outputs["redness_value"], atol=0.1)
    assert b"red" == outputs["colour_label"][0]
    for client in clients(result.path.parent):
        red, bad = client.answer([picture("#f00"), b"?"])
        assert (255, "red", 3) == (
            pytest.approx(red.redness.values["value"], abs=0.1),
            red.colour.label,
            len(red.colour.top),
        )
        assert (False, False, bad.error) == (bad.ok, bad.colour.ok, bad.redness.error)
        assert "red" == client.answer(np.full((8, 8, 3), (255, 0, 0), np.uint8)).colour.label  # by signature pixels
        alone = client.predict({"image": np.array([picture("#00f")], object)}, signature="colour").outputs
        assert [b"blue"] == alone["label"].tolist()
        with pytest.raises(
            RequestRefusedError, match=r"the task .* is heads: use the method answer\(\) instead of embed"
        ):
            client.embed(picture("#f00"))
    assert b"red" == ask_amqp(result.path.parent, picture("#f00"))["colour_label"].encode()
    url = f"{serve(result.path.parent).url}/photos/network"
    (answer,) = requests.post(url, data=picture("#0f0"), timeout=30).json()["results"]
    assert ("heads", ["colour", "redness"]) == (
        requests.post(url, data=picture("#0f0"), timeout=30).json()["task"],
        sorted(answer["heads"]),
    )
    assert ("classify", "green") == (answer["heads"]["colour"]["task"], answer["heads"]["colour"]["label"])


def test_movenet_needs_no_options(clients: Clients, ask_amqp: AskAmqp, tmp_path: Path) -> None:
    """The point lies where the photo has it, turned by EXIF and in a letterbox."""
    shape_models.save_like_movenet(tmp_path / "movenet")
    photos = []
    for orientation in (1, 6):
        upright = shape_models.draw((120, 300), {"red": (0.5, 0.1, 0.75, 0.3)})
        stored = upright if orientation == 1 else upright.transpose(Image.Transpose.ROTATE_90)
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        stored.save(path := tmp_path / f"{orientation}.png", exif=exif)
        photos.append(path)
    result = bake(model=str(tmp_path / "movenet"), out=tmp_path, name="pose", photos=photos)
    assert result.parity.is_within
    assert "letterbox:down" == result.recipe.preprocessing.crop
    for client in clients(result.path.parent):
        check_goldens(result, client)
        *found, bad = client.keypoints([*(photo.read_bytes() for photo in photos), b"?"])
        for keypoints in found:
            nose = keypoints.points[0]
            assert ("nose", 17, 18) == (nose.name, len(keypoints.points), len(keypoints.edges))
            assert (75, 60, 0.9) == pytest.approx((nose.y, nose.x, nose.score), abs=1.5)
        assert (False, ()) == (bad.ok, bad.points)
    np.testing.assert_allclose([75, 60], ask_amqp(result.path.parent, photos[1].read_bytes())["points"][0], atol=1.5)


def test_a_network_that_returns_a_picture(clients: Clients, ask_amqp: AskAmqp, tmp_path: Path) -> None:
    shape_models.negative().save(tmp_path / "network.keras")
    result = bake_network(tmp_path, task="image", output_range="0..1", output_size="photo")
    files = ask(clients, result)["png_bytes"]
    for client in clients(result.path.parent):
        cyan, bad = client.transform([picture("cyan"), b"?"])
        assert (30, 20, 3) == cyan.array.shape
        np.testing.assert_array_equal([[[255, 0, 0]]], np.unique(cyan.array.reshape(1, -1, 3), axis=1))
        assert (files[1], b"", False) == (cyan.png, bad.png, bad.ok)
    assert {"b64": base64.b64encode(files[1]).decode()} == ask_amqp(result.path.parent, picture("cyan"))["png_bytes"]


def test_all_outputs_of_a_network_as_they_are(clients: Clients, ask_amqp: AskAmqp, tmp_path: Path) -> None:
    """A number, the picture itself and a whole number, in one answer."""
    import keras

    images = keras.Input((8, 8, 3))
    means = keras.layers.GlobalAveragePooling2D()(images)
    outputs = {"mean": means, "picture": 1 - images, "brightest": keras.ops.argmax(means, axis=-1)}
    keras.Model(images, outputs).save(tmp_path / "network.keras")
    result = bake_network(tmp_path, task="tensors")
    arrays = ask(clients, result)
    np.testing.assert_allclose([*MEANS.values(), [0, 0, 0]], arrays["mean"], atol=1e-3)
    assert ((5, 8, 8, 3), "int32", 1) == (arrays["picture"].shape, arrays["brightest"].dtype, arrays["brightest"][1])
    np.testing.assert_allclose(arrays["picture"][1, 3, 4], [1, 0, 0], atol=1e-3)
    for client in clients(result.path.parent):
        cyan, bad = client.tensors([picture("cyan"), b"?"])
        assert ["brightest", "mean", "picture"] == list(cyan.tensors)
        np.testing.assert_array_equal(arrays["picture"][1], cyan.tensors["picture"])
        assert ({}, False) == (bad.tensors, bad.ok)
        assert cyan == client.tensors(picture("cyan")) != client.tensors(picture("red"))
    assert [0, 1, 1] == ask_amqp(result.path.parent, picture("cyan"))["mean"]


def test_the_asynchronous_client_has_the_same_methods(tagger: BakeResult, serve: Serve) -> None:
    async def run(target: str) -> tuple[Tags, list[Tags]]:
        async with AsyncClient(target, model="network") as client:
            return await client.tags(plain("red")), await client.tags([plain("red"), plain("black")])

    one, several = asyncio.run(run(serve(tagger.path.parent).target))
    assert [one, Tags(True, None)] == several
    assert ["red"] == [tag.label for tag in one.tags]
