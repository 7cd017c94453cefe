"""Source: networks whose code is part of the exporter and whose weights come from a package."""

from __future__ import annotations

from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.sources.network import Network

_VARIANTS = {"efficientnet-lite0": 0, "efficientnet-lite1": 1, "efficientnet-lite2": 2}
FORM = ", ".join(_VARIANTS)


def matches(model: str) -> bool:
    """Return whether `model` has the form of a built-in name."""
    return model.startswith("efficientnet-lite")


def read(model: str, *, task: str | None = None) -> Network:
    """Build the network and load its ImageNet weights; for task embed, up to the features before the classifier."""
    recipe = {"labels": "imagenet", "outputs": "probabilities", **preprocessing(model)}
    from savedmodel_bakery.exporter.sources import efficientnet_lite

    network = efficientnet_lite.load(_VARIANTS[model], with_classifier=task != "embed")
    return Network(lambda pixels: network(pixels, training=False), recipe)


def preprocessing(model: str) -> dict[str, Any]:
    """Return the preprocessing that the network was trained with."""
    if model not in _VARIANTS:
        raise SourceError(f"unknown built-in model {model!r}: allowed are {FORM}")
    from savedmodel_bakery.exporter.sources import efficientnet_lite

    size = efficientnet_lite.SIZES[_VARIANTS[model]]
    # efficientnet/preprocessing.py and lite/efficientnet_lite_builder.py of github.com/tensorflow/tpu: a central crop
    # that leaves a margin of 32 pixels at the network's size, bicubic, mean 127, standard deviation 128.
    return {
        "size": (size, size),
        "crop": f"{size}/{size + 32}",
        "resize": "bicubic",
        "antialias": False,
        "scale": "127:128",
        "channels": "RGB",
    }
