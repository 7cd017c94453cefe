"""Every type of source becomes a SavedModel that answers; tests/exporter/test_bake.py bakes .h5 files.

The networks return the mean of each colour channel, so the label of a plain image is its colour.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hub_server import HubServer
from PIL import Image
from tf1_session import Loaded, loaded

from savedmodel_bakery import bake
from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.recipe import complete_recipe, convert_values
from savedmodel_bakery.exporter.resources import read_class_names
from savedmodel_bakery.exporter.servable_module import ServableModule
from savedmodel_bakery.exporter.sources import read_network

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

COLOURS = ["red", "green", "blue"]
RECIPE = {"crop": "none", "resize": "bilinear", "antialias": False, "scale": "0..1", "channels": "RGB"}
MODULE = '''
import keras
import tensorflow as tf


class Colours(tf.Module):
    """Returns [batch, 1, 1, 3]."""

    def __call__(self, images):
        return tf.reduce_mean(images, [1, 2], keepdims=True)


def as_module():
    return Colours()


def as_keras():
    return colours(keras.Input((8, 8, 3)))


def colours(images):
    return keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on sys.path with label files and a module that builds models."""
    path = tmp_path_factory.mktemp("sources")
    (path / "colours.txt").write_text("\n".join(COLOURS))
    (path / "colours.csv").write_text("id,name\n2,blue\n0,red\n1,green\n")
    (path / "bright.json").write_text('{"0": "bright", "1": "dark"}')
    # TF Hub modules have 1001 classes by convention.
    (path / "thousand.txt").write_text("\n".join([*COLOURS, *(f"class {number}" for number in range(3, 1001))]))
    (path / "colour_models.py").write_text(MODULE)
    sys.path.insert(0, str(path))
    yield path
    sys.path.remove(str(path))


def keras_file(folder: Path) -> str:
    import colour_models

    colour_models.as_keras().save(folder / "colours.keras")
    return str(folder / "colours.keras")


def gray_keras(folder: Path) -> str:
    import keras

    images = keras.Input((8, 8, 1))
    bright = keras.layers.GlobalAveragePooling2D()(images)
    both = keras.layers.Concatenate()([bright, keras.layers.Rescaling(-1.0, 1.0)(bright)])
    keras.Model(images, both).save(folder / "gray.keras")
    return str(folder / "gray.keras")


def scaling_keras(folder: Path) -> str:
    """Save a Keras model that scales pixels itself, and whose weights return the colours as they are."""
    import keras
    import numpy as np

    images = keras.Input((8, 8, 3))
    convolution = keras.layers.Conv2D(3, 1, use_bias=False)
    colours = convolution(keras.layers.Rescaling(1 / 255)(images))
    convolution.set_weights([np.eye(3, dtype=np.float32)[np.newaxis, np.newaxis]])
    keras.Model(images, keras.layers.GlobalAveragePooling2D()(colours)).save(folder / "scaling.keras")
    return str(folder / "scaling.keras")


def tf1_saved_model(folder: Path) -> str:
    """Save a TensorFlow 1 model with a variable, a signature that isn't the default, and two outputs."""
    import tensorflow as tf

    tf1 = tf.compat.v1
    path = str(folder / "tf1")
    with tf.Graph().as_default(), tf1.Session() as session:
        images = tf1.placeholder(tf.float32, [None, 8, 8, 3], "images")
        weight = tf.Variable([1.0, 1.0, 1.0], name="weight")
        means = tf.reduce_mean(images, [1, 2]) * weight
        signature = tf1.saved_model.predict_signature_def({"images": images}, {"means": means, "same": images})
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.builder.SavedModelBuilder(path)
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map={"means_of": signature})
        builder.save()
    return path


def tf2_saved_model(folder: Path) -> str:
    import colour_models

    colour_models.as_keras().export(folder / "tf2", verbose=False)
    return str(folder / "tf2")


def hub_module(folder: Path) -> str:
    """Save a TF2 module for TF Hub that takes images and `training`, and returns logits of 1001 classes."""
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.Variable(10.0)

        @tf.function(
            input_signature=[tf.TensorSpec([None, 8, 8, 3], tf.float32), tf.TensorSpec([], tf.bool)], autograph=False
        )
        def __call__(self, images: tf.Tensor, training: tf.Tensor) -> tf.Tensor:
            means = tf.cond(training, lambda: tf.zeros_like(images), lambda: images)
            return tf.pad(tf.reduce_mean(means, [1, 2]) * self.scale, [[0, 0], [0, 998]])

    path = folder / "hub"
    tf.saved_model.save(Module(), str(path))
    return f"hub:{path}"


class Case:
    """A source: a function that makes it, and the options for baking it."""

    def __init__(self, make: Callable[[Path], str], labels: str = "colours.txt", **options: object) -> None:
        self.make = make
        self.labels = labels
        self.options = options


LOGITS = {**RECIPE, "outputs": "logits"}
CASES = {
    "keras": Case(keras_file, "colours.csv", **LOGITS),
    "module": Case(lambda _: "colour_models:as_module", **LOGITS, size=(8, 16)),
    "scaling": Case(scaling_keras, outputs="logits", like="keras:EfficientNetB0"),
    "gray": Case(gray_keras, "bright.json", **{**RECIPE, "channels": None, "outputs": "probabilities"}),
    "tf1": Case(tf1_saved_model, **LOGITS, source_signature="means_of", source_output="means"),
    "tf2": Case(tf2_saved_model, **LOGITS),
    "hub": Case(hub_module, "thousand.txt"),
    "application": Case(lambda _: "keras:MobileNetV3Small", "imagenet", weights="none"),
}
BAKED = {"scaling", "gray", "tf1"}
"""Of which a bake knows more than the network; the others are only built, which takes half the time."""


@pytest.fixture
def run(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[Loaded]:
    """The SavedModel of a case in a Session, as the model server runs it."""
    case = CASES[request.param]
    values = {"labels": case.labels if case.labels == "imagenet" else str(folder / case.labels), **case.options}
    values = convert_values({**values, "model": case.make(folder)})
    if request.param in BAKED:
        path = bake(out=tmp_path, name="model", recipe=values).path
    else:
        path = tmp_path / "1"
        network = read_network(values)
        recipe = complete_recipe({**network.defaults, **network.recipe}, values)
        ServableModule(network.call, recipe, read_class_names(recipe.answers.labels)).save(path)
    with loaded(path) as run:
        yield run


def picture(colour: str) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (20, 10), colour).save(data, "PNG")
    return data.getvalue()


@pytest.mark.parametrize("run", ["keras", "module", "scaling", "tf1", "tf2", "hub"], indirect=True)
def test_the_label_is_the_colour(run: Loaded) -> None:
    outputs = run("serving_default", [picture(colour) for colour in ("#f00", "#0f0", "#00f")])
    assert [b"red", b"green", b"blue"] == outputs["output_0"].tolist()


@pytest.mark.parametrize("run", ["gray"], indirect=True)
def test_a_network_with_one_channel_gets_gray_images(run: Loaded) -> None:
    """Rec. 601: pure green has 0.587 of white's brightness, pure red 0.299."""
    outputs = run("serving_default", [picture(colour) for colour in ("#fff", "#000", "#0f0", "#f00")])
    assert [b"bright", b"dark", b"bright", b"dark"] == outputs["output_0"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("run", ["application"], indirect=True)
def test_a_keras_application_returns_its_classes(run: Loaded) -> None:
    (class_ids,) = run("top_k", [picture("#888")])["class_ids"]
    assert 5 == len({*class_ids.tolist()})


class TestHubDownload:
    def test_modules_are_downloaded_once_and_missing_ones_are_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second time the cache is used; a failed download adds nothing to it."""
        cache = tmp_path / "cache"
        monkeypatch.setenv("TFHUB_CACHE_DIR", str(cache))
        module = Path(hub_module(tmp_path).removeprefix("hub:"))
        with HubServer(module) as hub:
            for _ in range(2):
                network = read_network({"model": hub.handle})
                assert "logits" == {**network.defaults, **network.recipe}["outputs"]
                assert (1, 1001) == network.call(np.zeros((1, 8, 8, 3), np.float32)).shape
            assert ["/colours/1?tf-hub-format=compressed"] == hub.requests
            before = sorted(path.name for path in cache.iterdir())
            missing = hub.handle.replace("colours", "shapes")
            with pytest.raises(SourceError, match=rf"^cannot download {missing} from 127.0.0.1: .*404"):
                read_network({"model": missing})
            assert before == sorted(path.name for path in cache.iterdir())
        with pytest.raises(SourceError, match=r"from 127.0.0.1: .*refused.*; download it where that host can be"):
            read_network({"model": missing})
