"""Source: a network of keras.applications by name, as `keras:InceptionV3`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network, SourceOptions, of_keras_model

FORM = "keras:NAME, a network of keras.applications"
_PREFIX = "keras:"

# How each module of keras.applications prepares pixels: its preprocess_input, or, where that does nothing, layers of
# the network itself (EfficientNet, MobileNetV3, ConvNeXt).
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

# Where the default is any size: the one the weights were trained at.
_SHAPES = {"mobilenet_v3": (224, 224, 3)}


def matches(model: str) -> bool:
    """Whether `model` begins with `keras:`."""
    return model.startswith(_PREFIX)


def applications() -> dict[str, Any]:
    """Every network that the installed Keras ships, by name."""
    import keras

    return {
        name: found
        for name, found in vars(keras.applications).items()
        if callable(found) and getattr(found, "__module__", "").rpartition(".")[2] in PREPARATION
    }


def read(model: str, options: SourceOptions) -> Network:
    """Build the network for the 1000 classes of ImageNet.

    Raises:
        SourceError: there is no such network, or its weights can't be had.
    """
    options.refuse(model, but=("weights",))
    name = model.removeprefix(_PREFIX)
    known = applications()
    if name not in known:
        raise SourceError(f"keras.applications has no {name!r}; allowed are {', '.join(sorted(known))}")
    weights = options.weights or "imagenet"
    if weights not in ("none", "imagenet") and not Path(weights).is_file():
        raise SourceError(f"weights are {weights!r}; allowed are none, imagenet and the path of a weights file")
    import keras

    keras.config.disable_interactive_logging()  # progress of a download would go to stdout
    module = known[name].__module__.rpartition(".")[2]
    try:
        built = known[name](weights=None if weights == "none" else weights, input_shape=_SHAPES.get(module))
    except Exception as error:  # Keras lets every kind of error through
        hint = "; download it elsewhere and give its path with --weights" if weights == "imagenet" else ""
        raise SourceError(f"the weights {weights!r} of {model} cannot be had: {error}{hint}") from error
    network = of_keras_model(built, model)
    prepared = {
        "labels": "imagenet",
        "crop": "none",
        "resize": "bilinear",
        "antialias": False,
        "outputs": "probabilities",
    }
    return Network(network.call, {**network.recipe, **prepared, **PREPARATION[module]})
