"""Reads the preprocessing of a recipe from an image converter of KerasHub."""

from __future__ import annotations

from typing import Any

import numpy as np

from savedmodel_bakery.exporter.recipe import LETTERBOX, SCALES

_SIDE = 32  # of the measured images, if the converter doesn't resize


def read_converter(converter: Any) -> dict[str, Any]:
    """Return the preprocessing that does what the converter does; without size, crop and resize if it doesn't resize.

    Args:
        converter: a `keras_hub.layers.ImageConverter`. What it does to levels is measured, because subclasses differ.
    """
    known: dict[str, Any] = {"scale": _measure_scale(converter), "channels": "RGB"}
    if converter.image_size is None:
        return known
    height, width = converter.image_size
    known |= {"size": (height, width), "resize": converter.interpolation, "antialias": converter.antialias}
    if converter.pad_to_aspect_ratio:
        known["crop"] = LETTERBOX
    elif not converter.crop_to_aspect_ratio:
        known["crop"] = "none"
    elif height == width:
        known["crop"] = "1"
    return known


def _measure_scale(converter: Any) -> str:
    """Return the scale that turns a black and a white image into what the converter makes of them."""
    height, width = converter.image_size or (_SIDE, _SIDE)
    images = np.zeros((2, height, width, 3), np.float32)
    images[1] = 255
    black, white = np.asarray(converter(images), np.float64)[:, height // 2, width // 2]
    std = 255 / (white - black)
    mean = -black * std
    for name, (known_mean, known_std) in SCALES.items():
        if np.allclose(mean, known_mean, atol=1e-3) and np.allclose(std, known_std, rtol=1e-5):
            return name
    return ":".join(",".join(f"{number:.6g}" for number in numbers) for numbers in (mean, std))
