"""Sources return a network with what they know of its recipe, and reject what they can't use in one sentence."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.errors import BakeError, SourceError
from savedmodel_bakery.exporter.image import pixels
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.sources import keras_application, read_network, read_preprocessing
from savedmodel_bakery.exporter.sources.network import from_keras_model

RESNET = {"scale": "caffe", "channels": "BGR"}
NAMES = sorted(keras_application.applications())


def test_every_network_of_keras_applications_is_known() -> None:
    """Everything in keras.applications that is not a module builds a network."""
    import keras

    builders = [name for name, value in vars(keras.applications).items() if callable(value) and name[0].isupper()]
    assert sorted(builders) == NAMES
    assert 38 <= len(NAMES)


@pytest.mark.parametrize("module", sorted(keras_application.PREPARATION))
def test_scale_and_channels_are_those_of_preprocess_input(module: str) -> None:
    """Compared with Keras' own preprocess_input, on random levels."""
    levels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype(np.float32)
    applications = importlib.import_module(f"keras.applications.{module}")
    values = {
        **keras_application.PREPARATION[module],
        "model": module,
        "labels": "imagenet",
        "size": (16, 16),
        "crop": "none",
        "resize": "bilinear",
        "antialias": False,
        "outputs": "probabilities",
    }
    expected = applications.preprocess_input(levels.copy())
    normalised = pixels.normalise(tf.constant(levels), Recipe.from_values(values).preprocessing).numpy()
    np.testing.assert_allclose(expected, normalised, rtol=0, atol=2e-5)


def test_the_table_of_the_page_has_the_same_values(clone: Path) -> None:
    page = (clone / "docs" / "how-to" / "fine-tuned.md").read_text()
    rows = re.findall(r"^\| ([A-Z][^|:]*)[^|]*\| `([^`]*)` \| `(RGB|BGR)` \|$", page, re.M)
    stated = {name: (scale, channels) for names, scale, channels in rows for name in names.strip().split(", ")}
    for name in NAMES:
        row = max((each for each in stated if name.startswith(each)), key=len)
        prepared = keras_application.preprocessing(name)
        assert stated[row] == (prepared["scale"], prepared["channels"]), name


@pytest.mark.parametrize(
    ("name", "size"), [("MobileNetV3Small", (224, 224)), ("MobileNetV2", (224, 224)), ("InceptionV3", (299, 299))]
)
def test_the_size_is_that_of_the_network(name: str, size: tuple[int, int]) -> None:
    network = read_network({"model": f"keras:{name}", "weights": "none"})
    assert size == network.recipe["size"]
    assert "imagenet" == network.recipe["labels"]


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("MobileNetV3")])
def test_the_size_is_the_one_that_keras_builds_by_default(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builders pass it to a function, which is replaced here, so that no network is built. MobileNetV3 has none."""

    class BuilderStoppedError(Exception):
        pass

    def stop(*_: object, default_size: int, **__: object) -> None:
        raise BuilderStoppedError(default_size)

    build = keras_application.applications()[name]
    # The decorated functions' module is `keras.src.applications.…`, which imports it as a module.
    monkeypatch.setattr(sys.modules[build.__module__].imagenet_utils, "obtain_input_shape", stop)
    with pytest.raises(BuilderStoppedError) as stopped:
        build(weights=None)
    assert (*stopped.value.args, *stopped.value.args) == read_preprocessing(f"keras:{name}")["size"]


@pytest.mark.parametrize("name", ["MobileNetV3Small", pytest.param("VGG16", marks=pytest.mark.slow)])
def test_an_embedder_has_no_classifier(name: str) -> None:
    """Its vectors are the means of the last feature map; VGG's own classifier has none."""
    import keras

    values = {"model": f"keras:{name}", "weights": "none", "task": "embed"}
    width = {"MobileNetV3Small": 576, "VGG16": 512}[name]
    images = tf.zeros((1, 224, 224, 3))
    assert (1, width) == read_network(values).call(images).shape
    last = "predictions" if name == "VGG16" else "global_average_pooling2d"
    keras.utils.clear_session()  # so that names of layers aren't numbered
    assert (1, width) != read_network({**values, "layer": last}).call(images).shape


def test_the_preprocessing_of_a_known_network_is_that_of_its_source() -> None:
    values = read_preprocessing("keras:ResNet50")
    assert {"size": (224, 224), "resize": "bilinear", "antialias": False, "crop": "none"} | RESNET == values
    assert "224/256" == read_preprocessing("efficientnet-lite0")["crop"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "MobileNetV2",
            "invalid like 'MobileNetV2': must be image_dataset_from_directory, load_img, tf.image.resize, torchvision:",
        ),
        ("keras:mobilenet", "keras.applications has no 'mobilenet': allowed are ConvNeXtBase, "),
        ("efficientnet-lite9", "unknown built-in model 'efficientnet-lite9': allowed are efficientnet-lite0, "),
    ],
)
def test_an_unknown_network_is_rejected_with_the_known_ones(name: str, message: str) -> None:
    with pytest.raises(BakeError) as error:
        read_preprocessing(name)
    assert str(error.value).startswith(message)


def tiny_saved_model(path: Path) -> str:
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4, 6, 3], tf.float32, name="images")], autograph=False)
        def classify(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"a": tf.reduce_mean(images, [1, 2]), "b": tf.reduce_max(images, [1, 2])}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="bytes")], autograph=False)
        def decode(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"length": tf.strings.length(data)}

    module = Module()
    tf.saved_model.save(module, str(path), signatures={"classify": module.classify, "decode": module.decode})
    return str(path)


def test_a_fixed_size_of_a_saved_model_is_known(tmp_path: Path) -> None:
    options = {"source_signature": "classify", "source_output": "a"}
    network = read_network({"model": tiny_saved_model(tmp_path / "m"), **options})
    assert {"size": (4, 6)} == network.recipe


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            {},
            'has no signature "serving_default"; it has "classify", "decode": select one with --source-signature',
            id="no default signature",
        ),
        pytest.param(
            {"source_signature": "classify", "source_output": "c"},
            'has no output "c"; it has "a", "b": select one with --source-output',
            id="unknown output",
        ),
        pytest.param({"source_signature": "decode"}, "has dtype string: must be a float", id="string input"),
        pytest.param({"weights": "none"}, "--weights cannot be used with model", id="weights"),
        pytest.param({"layer": "a"}, "; use --source-output, which selects an output of this model", id="layer"),
    ],
)
def test_a_missing_or_unsuitable_signature_is_rejected(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError) as error:
        read_network({"model": tiny_saved_model(tmp_path / "m"), **options})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("keras:Inception", "keras.applications has no 'Inception': allowed are ConvNeXtBase, "),
        ("resnet50", "unknown model 'resnet50': allowed are efficientnet-lite0, efficientnet-lite1, "),
        ("{tmp}", "{tmp} contains no saved_model.pb: pass the folder that does, such as MODEL/1"),
        ("hub:{tmp}", "{tmp} contains no saved_model.pb"),
    ],
)
def test_an_unknown_model_is_rejected(tmp_path: Path, model: str, message: str) -> None:
    with pytest.raises(SourceError) as error:
        read_network({"model": model.format(tmp=tmp_path)})
    assert str(error.value).startswith(message.format(tmp=tmp_path))


@pytest.mark.parametrize("name", ["MobileNet", "MobileNetV2", "ResNet50", "ResNet50V2"])
def test_a_network_of_keras_applications_is_recognised(name: str) -> None:
    """Of two whose names begin alike, the right one; also below layers of the user's."""
    import keras

    base = getattr(keras.applications, name)(weights=None, include_top=False, input_shape=(32, 32, 3))
    top = [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    assert name == keras_application.find_application(base)
    assert name == keras_application.find_application(keras.Sequential([base, *top]))
    assert keras_application.find_application(keras.Sequential(top, name="vgg16ish")) is None


def test_the_outputs_of_a_keras_detector_are_recognised_by_their_keys() -> None:
    """The layers that compute them may have any names."""
    import keras

    images = keras.Input((8, 8, 3))
    cells = keras.layers.Reshape((64, 3))(images)
    outputs = {"boxes": keras.layers.Dense(4)(cells), "scores": keras.layers.Dense(2)(cells)}
    assert "detect" == from_keras_model(keras.Model(images, outputs), "m").recipe["task"]


def test_an_error_of_downloading_weights_names_the_host(tmp_path: Path) -> None:
    """Keras downloads them; here its cache is empty and its proxy is a closed port."""
    keras_home = tmp_path / "keras"
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "savedmodel_bakery.exporter",
            "bake",
            "--model",
            "keras:MobileNetV3Small",
            "--out",
            str(tmp_path / "out"),
        ],
        env={**os.environ, "KERAS_HOME": str(keras_home), "https_proxy": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (1, "") == (result.returncode, result.stdout)
    last = result.stderr.splitlines()[-1]
    assert last.startswith("error: cannot load the weights 'imagenet' of keras:MobileNetV3Small: ")
    assert "https://storage.googleapis.com/" in last
    assert last.endswith("; download them elsewhere and pass their path with --weights")
    assert [] == list(keras_home.rglob("*.h5*"))
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("ending", [".h5", ".keras"])
def test_a_file_of_keras_2_that_keras_3_cannot_load_can_be_converted(tmp_path: Path, ending: str) -> None:
    """The error says how, and doing so gives the network that was saved."""
    import tf_keras

    path = tmp_path / f"old{ending}"
    inputs = tf_keras.layers.Input((8, 8, 3))
    filtered = tf_keras.layers.DepthwiseConv2D(3)(inputs)  # Keras 3 rejects `groups`, which Keras 2 wrote
    original = tf_keras.Model(inputs, tf_keras.layers.GlobalAveragePooling2D()(filtered))
    original.save(path)
    with pytest.raises(SourceError) as error:
        read_network({"model": str(path)})
    assert f"it was saved by Keras {tf_keras.__version__}: load it with the package tf-keras" in str(error.value)
    tf_keras.models.load_model(path).export(str(tmp_path / "FOLDER"))
    network = read_network({"model": str(tmp_path / "FOLDER")})
    images = np.random.default_rng(0).random((2, 8, 8, 3), np.float32)
    np.testing.assert_allclose(original(images), network.call(tf.constant(images)), rtol=1e-5)
