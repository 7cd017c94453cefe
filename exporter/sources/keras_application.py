"""Source: a network of keras.applications by name, such as `keras:InceptionV3`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, from_keras_model

PREFIX = "keras:"

# How each module of keras.applications normalises pixels in its preprocess_input. EfficientNet, MobileNetV3 and
# ConvNeXt normalise in layers of the network instead.
_RGB_MINUS_1_TO_1 = {"scale": "-1..1", "channels": "RGB"}
_RGB_0_TO_255 = {"scale": "0..255", "channels": "RGB"}
_CAFFE = {"scale": "caffe", "channels": "BGR"}
PREPARATION = {
    "convnext": _RGB_0_TO_255,
    "densenet": {"scale": "imagenet", "channels": "RGB"},
    "efficientnet": _RGB_0_TO_255,
    "efficientnet_v2": _RGB_0_TO_255,
    "inception_resnet_v2": _RGB_MINUS_1_TO_1,
    "inception_v3": _RGB_MINUS_1_TO_1,
    "mobilenet": _RGB_MINUS_1_TO_1,
    "mobilenet_v2": _RGB_MINUS_1_TO_1,
    "mobilenet_v3": _RGB_0_TO_255,
    "nasnet": _RGB_MINUS_1_TO_1,
    "resnet": _CAFFE,
    "resnet_v2": _RGB_MINUS_1_TO_1,
    "vgg16": _CAFFE,
    "vgg19": _CAFFE,
    "xception": _RGB_MINUS_1_TO_1,
}

# Height and width that the weights were trained at, in pixels.
_USUAL_SIZE = 224
_SIZES = {
    "EfficientNetB1": 240,
    "EfficientNetB2": 260,
    "EfficientNetB3": 300,
    "EfficientNetB4": 380,
    "EfficientNetB5": 456,
    "EfficientNetB6": 528,
    "EfficientNetB7": 600,
    "EfficientNetV2B1": 240,
    "EfficientNetV2B2": 260,
    "EfficientNetV2B3": 300,
    "EfficientNetV2L": 480,
    "EfficientNetV2M": 480,
    "EfficientNetV2S": 384,
    "InceptionResNetV2": 299,
    "InceptionV3": 299,
    "NASNetLarge": 331,
    "Xception": 299,
}


def applications() -> dict[str, Callable[..., Any]]:
    """Return the builder of every network in the installed Keras, by name."""
    import keras

    return {
        name: value
        for name, value in vars(keras.applications).items()
        if callable(value) and getattr(value, "__module__", "").rpartition(".")[2] in PREPARATION
    }


def preprocessing(model: str) -> dict[str, Any]:
    """Return the preprocessing that the network was trained with."""
    name = model.removeprefix(PREFIX)
    builders = applications()
    if name not in builders:
        raise SourceError(f"keras.applications has no {name!r}: allowed are {', '.join(sorted(builders))}")
    size = _SIZES.get(name, _USUAL_SIZE)
    return {
        "size": (size, size),
        "crop": "none",
        "resize": "bilinear",
        "antialias": False,
        **PREPARATION[builders[name].__module__.rpartition(".")[2]],
    }


def find_application(model: Any) -> str | None:
    """Return the name of the network of keras.applications that a Keras model is or has as a layer; None if none.

    Keras names such a layer after the network, such as `mobilenetv2_1.00_224`.
    """
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in applications()}
    for part in (model, *model.layers):
        letters = re.sub(r"[^a-z0-9]", "", part.name.lower())
        found = [name for start, name in plain.items() if re.fullmatch(rf"{start}\d*", letters)]
        if found and hasattr(part, "layers"):
            return found[0]
    return None


def read(model: str, *, weights: str = "imagenet", layer: str | None = None, task: str | None = None) -> Network:
    """Build the network for the 1000 classes of ImageNet, or for task embed without its classifier.

    Without it, and unless a layer is stated, the network returns the mean of its last feature map, as with
    `include_top=False, pooling="avg"`; a file of weights must be for that.
    """
    recipe = {"labels": "imagenet", "outputs": "probabilities", **preprocessing(model)}
    if weights not in ("none", "imagenet") and not Path(weights).is_file():
        raise SourceError(f"invalid weights {weights!r}: must be none, imagenet or the path of a weights file")
    import keras

    keras.config.disable_interactive_logging()  # a download would report its progress on stdout
    build = applications()[model.removeprefix(PREFIX)]
    options: dict[str, Any] = {"weights": None if weights == "none" else weights, "input_shape": (*recipe["size"], 3)}
    if task == "embed" and layer is None:
        options |= {"include_top": False, "pooling": "avg"}
    try:
        built = build(**options)
    except Exception as error:  # Keras raises all types of errors
        hint = "; download them elsewhere and pass their path with --weights" if weights == "imagenet" else ""
        raise SourceError(f"cannot load the weights {weights!r} of {model}: {error}{hint}") from error
    return replace(from_keras_model(built, model, layer), recipe=recipe)
