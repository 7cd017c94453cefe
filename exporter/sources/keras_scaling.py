"""Detects whether a Keras model scales pixels itself, by measuring what it does with them before any weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from savedmodel_bakery.exporter.tensor_types import Tensor

_SIDE = 32  # of the measured images, for models that accept any size
_MAX_SCALED = 16.0  # pixels divided by a standard deviation of 16 or more
_MAX_MEAN, _MIN_MEAN = 135.0, 95.0  # of a dataset, subtracted from pixels that are not divided

Levels = tuple[float, float, float]
_UNSCALED: Levels = (0.0, 127.5, 255.0)


def find_scaling_layer(model: Any) -> str | None:
    """Return the name of the layer or operation with which a model starts to scale pixels from 0..255.

    Runs a black, a grey and a white image through everything before the first layer with weights, or through all of a
    model without weights: Rescaling, Normalization, or the operations that `keras.applications…preprocess_input` adds
    to a model; nested models too.

    Args:
        model: a built Keras model that takes images.

    Returns:
        None if the values that reach that layer, or the end, aren't pixels 0..255 scaled to a range around 0, or can't
        be measured.
    """
    _, height, width, channels = model.input_shape
    images = np.zeros((3, height or _SIDE, width or _SIDE, channels or 3), np.float32)
    images += np.reshape(_UNSCALED, (3, 1, 1, 1))
    levels: dict[str, Levels] = {}
    try:
        _measure(model, images, levels)
    except (AttributeError, ValueError):  # a layer that is part of several models, or doesn't accept this size
        return None
    if not levels:
        return None
    black, grey, white = list(levels.values())[-1]
    is_linear = abs(black + white - 2 * grey) <= 0.01 * abs(white - black)  # unlike an activation
    is_scaled = max(abs(black), abs(white)) <= _MAX_SCALED and abs(white - black) > 0.5
    is_centred = abs(white - black - 255) < 1 and -_MAX_MEAN < black < -_MIN_MEAN
    if not is_linear or not (is_scaled or is_centred):
        return None
    return next(name for name, measured in levels.items() if not np.allclose(measured, _UNSCALED))


def _measure(model: Any, images: Tensor, levels: dict[str, Levels]) -> Tensor | None:
    """Record, by name, the levels of a black, a grey and a white image after each operation before any weights.

    Returns:
        The model's output; None if it has weights, or is not made of layers.
    """
    import keras

    operations = model.layers if isinstance(model, keras.Sequential) else getattr(model, "operations", None)
    if operations is None:  # a subclass of Model with a `call` of its own
        return None

    def run_to(tensor: Any) -> Tensor:
        return keras.Model(model.inputs[0], tensor)(images, training=False)

    result = images
    for operation in operations:
        if isinstance(operation, keras.layers.InputLayer):
            continue
        if isinstance(operation, keras.Model):
            nested = _measure(operation, result, levels)
            if nested is None:
                return None
            result = nested
        elif getattr(operation, "weights", ()) and not isinstance(operation, keras.layers.Normalization):
            levels[operation.name] = _levels(run_to(operation.input))
            return None
        else:
            result = run_to(keras.tree.flatten(operation.output)[0])
            levels[operation.name] = _levels(result)
    return result


def _levels(images: Tensor) -> Levels:
    """Return the mean level of a black, a grey and a white image, without their padding, which is the same in all."""
    arrays = np.asarray(images, np.float64)
    is_pixel = arrays[0] != arrays[2]
    if not is_pixel.any():
        return 0.0, 0.0, 0.0
    black, grey, white = (float(np.mean(image[is_pixel])) for image in arrays)
    return black, grey, white
