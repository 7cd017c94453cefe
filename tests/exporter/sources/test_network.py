"""A Keras model that scales its input itself is recognised by what reaches its first layer with weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from savedmodel_bakery.exporter.network_inputs import Input
from savedmodel_bakery.exporter.sources import read_network
from savedmodel_bakery.exporter.sources.network import find_scaling_layer, from_keras_model, take_pixels

# Keras saves its variables in a way that NumPy 2 warns about.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SHAPE = (16, 12, 3)
layers = keras.layers


def base() -> keras.Model:
    return keras.Sequential([layers.Input(SHAPE), layers.Conv2D(4, 3), layers.GlobalAveragePooling2D()], name="base")


def sequential(*first: layers.Layer, shape: tuple[int | None, ...] = SHAPE) -> keras.Model:
    return keras.Sequential(
        [layers.Input(shape), *first, layers.Conv2D(4, 3), layers.GlobalAveragePooling2D(), layers.Dense(2)]
    )


def functional(prepare: Callable[[Any], Any]) -> keras.Model:
    images = keras.Input(SHAPE)
    return keras.Model(images, layers.Dense(2)(base()(prepare(images))))


def adapted() -> layers.Layer:
    levels = np.random.default_rng(0).integers(0, 256, (8, *SHAPE)).astype("float32")
    layer = layers.Normalization(name="norm")
    layer.adapt(levels)
    return layer


def augmentation() -> keras.Model:
    return keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomContrast(0.2)], name="augmentation")


def shared() -> keras.Model:
    """A model whose Rescaling layer is part of another model too."""
    layer = layers.Rescaling(1 / 255)
    layer(keras.Input(SHAPE))
    return functional(layer)


class Subclass(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.rescaling, self.dense = layers.Rescaling(1 / 255), layers.Dense(2)

    def call(self, images: Any) -> Any:
        return self.dense(keras.ops.mean(self.rescaling(images), axis=(1, 2)))


def subclass() -> keras.Model:
    model = Subclass()
    model(np.zeros((1, *SHAPE), np.float32))
    return model


SCALING = {
    "Rescaling": (lambda: sequential(layers.Rescaling(1 / 255, name="scale")), "scale"),
    "to -1..1": (lambda: sequential(layers.Rescaling(1 / 127.5, -1.0, name="scale")), "scale"),
    "Normalization with constants": (
        lambda: sequential(layers.Normalization(mean=[124, 116, 104], variance=[3364] * 3, name="norm")),
        "norm",
    ),
    "adapted Normalization": (lambda: sequential(adapted()), "norm"),
    "both": (lambda: sequential(layers.Rescaling(1 / 255, name="scale"), adapted()), None),
    "after augmentation": (lambda: sequential(augmentation(), layers.Rescaling(1 / 255, name="scale")), "scale"),
    "in a nested model": (lambda: functional(keras.Sequential([layers.Rescaling(1 / 255, name="scale")])), "scale"),
    "after padding": (lambda: sequential(layers.Rescaling(1 / 255, name="scale"), layers.ZeroPadding2D(1)), "scale"),
    "after padding wider than the image": (
        lambda: sequential(layers.Rescaling(1 / 255, name="scale"), layers.ZeroPadding2D(3), shape=(4, 4, 3)),
        "scale",
    ),
    "any size": (lambda: sequential(layers.Rescaling(1 / 255, name="scale"), shape=(None, None, 3)), "scale"),
    "one channel": (lambda: sequential(layers.Rescaling(1 / 255, name="scale"), shape=(8, 8, 1)), "scale"),
    "flattened": (
        lambda: keras.Sequential(
            [layers.Input(SHAPE), layers.Rescaling(1 / 255, name="scale"), layers.Flatten(), layers.Dense(2)]
        ),
        "scale",
    ),
    "division": (lambda: functional(lambda images: images / 255), "true_divide"),
    "EfficientNet": (lambda: keras.applications.EfficientNetB0(weights=None, name="e"), "rescaling"),
    "MobileNetV3": (lambda: keras.applications.MobileNetV3Small(weights=None), "rescaling"),
    "ConvNeXt": (lambda: keras.applications.ConvNeXtTiny(weights=None), "convnext_tiny_prestem_normalization"),
    "augmentation only": (lambda: sequential(augmentation()), None),
    "input 0..1 for a network that takes -1..1": (lambda: sequential(layers.Rescaling(2.0, -1.0)), None),
    "input 0..1 for a network that takes 0..255": (
        lambda: sequential(layers.Rescaling(255.0), layers.Rescaling(1 / 255)),
        None,
    ),
    "after the first weights": (lambda: functional(layers.Conv2D(3, 1)), None),
    "without weights": (
        lambda: keras.Sequential(
            [layers.Input(SHAPE), layers.Rescaling(1 / 255, name="scale"), layers.GlobalMaxPooling2D()]
        ),
        "scale",
    ),
    "Normalization without weights": (
        lambda: keras.Sequential([layers.Input(SHAPE), adapted(), layers.GlobalAveragePooling2D()]),
        "norm",
    ),
    "preprocess_input without weights": (
        lambda: keras.Sequential(
            [
                layers.Input(SHAPE),
                layers.Lambda(keras.applications.mobilenet_v2.preprocess_input, name="prepare"),
                layers.GlobalAveragePooling2D(),
            ]
        ),
        "prepare",
    ),
    "pixels 0..255 without weights": (
        lambda: keras.Sequential([layers.Input(SHAPE), layers.GlobalAveragePooling2D()]),
        None,
    ),
    "an activation without weights": (
        lambda: keras.Sequential(
            [layers.Input(SHAPE), layers.GlobalAveragePooling2D(), layers.Activation("tanh", name="tanh")]
        ),
        None,
    ),
    "an activation before the first weights": (lambda: sequential(layers.Activation("relu6")), None),
    "shared layer": (shared, None),
    "subclass": (lambda: keras.Sequential([layers.Input(SHAPE), subclass()]), None),
}


@pytest.mark.parametrize(("make", "expected"), SCALING.values(), ids=SCALING)
def test_the_first_layer_that_scales_pixels_is_named(make: Callable[[], Any], expected: str | None) -> None:
    keras.utils.clear_session()  # so that names of layers aren't numbered
    assert expected == find_scaling_layer(make())


@pytest.mark.parametrize("module", ["densenet", "inception_v3", "mobilenet_v2", "resnet"])
def test_preprocess_input_is_recognised_in_a_file(module: str, tmp_path: Path) -> None:
    prepare = getattr(keras.applications, module).preprocess_input
    functional(prepare).save(tmp_path / "m.keras")
    network = read_network({"model": str(tmp_path / "m.keras")})
    assert {"size": (16, 12), "scale": "0..255"} == network.recipe
    assert {"channels": "RGB"} == network.defaults
    assert network.scaling_layer is not None


@pytest.mark.parametrize(
    ("make", "expected"), [(base, {"size": (16, 12)}), (subclass, {})], ids=["layers", "a subclass of Model"]
)
def test_the_scale_of_other_models_is_not_known(make: Callable[[], keras.Model], expected: dict[str, Any]) -> None:
    network = from_keras_model(make(), "m")
    assert (expected, {}, None) == (network.recipe, network.defaults, network.scaling_layer)


@pytest.mark.parametrize("batch", [None, 1, 2])
def test_other_forms_of_input_take_the_same_pixels(batch: int | None) -> None:
    """Channels first, a fixed number of images, and half precision, or whole numbers."""
    image = keras.Input((3, 8, 6), batch_size=batch)
    mean = layers.GlobalAveragePooling2D(data_format="channels_first")(image)
    network = from_keras_model(keras.Model(image, [mean, image * 2]), "first")
    assert {"size": (8, 6)} == network.recipe
    pixels = np.random.default_rng(0).uniform(0, 255, (3, 8, 6, 3)).astype(np.float32)
    mean, doubled = network.call(tf.constant(pixels)).values()  # type: ignore[union-attr]
    np.testing.assert_allclose(pixels.mean(axis=(1, 2)), mean, rtol=1e-5)
    np.testing.assert_allclose(pixels * 2, doubled, rtol=1e-5)
    for dtype, atol in (("uint8", 0.5), ("float16", 0.1), ("int32", 0.5)):
        same = take_pixels(tf.identity, Input((batch, 8, 6, 3), dtype))(tf.constant(pixels))
        assert dtype == same.dtype.name
        np.testing.assert_allclose(pixels, tf.cast(same, tf.float32), atol=atol)


def test_channels_first_are_measured_and_described_as_channels_last() -> None:
    keras.utils.clear_session()
    image = keras.Input((3, 8, 8))
    scaled = layers.Rescaling(1 / 255, name="scale")(image)
    network = from_keras_model(keras.Model(image, layers.Conv2D(10, 8, data_format="channels_first")(scaled)), "first")
    assert ("scale", (None, 1, 1, 10), False) == (network.scaling_layer, network.output_shape, network.returns_map)


def test_a_second_image_may_have_another_form_than_the_first() -> None:
    photo = keras.Input((8, 8, 3), name="photo")
    depth = keras.Input((1, 4, 6), dtype="uint8", name="depth")  # channels first
    means = [layers.GlobalAveragePooling2D()(layers.Rescaling(1 / 255, name="scale")(photo))]
    means.append(layers.GlobalAveragePooling2D(data_format="channels_first")(layers.Rescaling(1.0, -10)(depth)))
    network = from_keras_model(keras.Model([depth, photo], means), "pairs", source_input="photo,depth")
    second_recipe = {"size": (4, 6), "scale": "0..255", "channels": "GRAY"}  # whole numbers take pixels as they are
    assert {"size": (8, 8), "scale": "0..255", "image_2": second_recipe} == network.recipe
    assert ("scale", False) == (network.scaling_layer, network.scales_second)
    first, second = network.call(tf.ones([2, 8, 8, 3]), image_2=tf.fill([2, 4, 6, 1], 30.4)).values()  # type: ignore[union-attr]
    np.testing.assert_allclose(np.full((2, 3), 1 / 255), first, rtol=1e-6)
    np.testing.assert_allclose(np.full((2, 1), 20.0), second)
    grey = keras.Input((8, 8, 1), name="grey")
    assert {"size": (8, 8), "channels": "RGB"} == from_keras_model(
        keras.Model([grey, photo], layers.Flatten()(grey)), "pairs", source_input="grey,photo"
    ).recipe["image_2"]


def test_whole_numbers_take_pixels_as_they_are() -> None:
    image = keras.Input((8, 8, 3), dtype="uint8")
    network = from_keras_model(keras.Model(image, layers.Rescaling(1.0)(image)), "whole")
    assert "0..255" == network.recipe["scale"]


def test_a_batch_of_one_may_return_any_number_of_boxes() -> None:
    def run(images: tf.Tensor) -> tf.Tensor:
        return tf.boolean_mask(tf.reshape(images, [-1, 3]), tf.reshape(images, [-1, 3])[:, 0] > 0)[tf.newaxis]

    traced = tf.function(take_pixels(run, Input((1, 4, 4, 3), "float32")))
    boxes = traced.get_concrete_function(tf.TensorSpec([None, 4, 4, 3]))(tf.ones([2, 4, 4, 3]))
    assert (2, 16, 3) == boxes.shape
