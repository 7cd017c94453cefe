"""What a model source hands over: the network and what is known of its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.errors import SourceError


@dataclass(frozen=True)
class Network:
    """A trained network.

    Attributes:
        call: from float32 [batch, height, width, 3], normalised, to float32 [batch, classes].
        recipe: values of the recipe that are known of it, not guessed.
    """

    call: Callable[[Any], Any]
    recipe: Mapping[str, Any] = field(default_factory=dict)


def of_keras_model(model: Any, name: str) -> Network:
    """The network of a Keras model; the size of its input is known where it is fixed.

    Raises:
        SourceError: it doesn't take one batch of RGB images or doesn't give one row of numbers an image.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise SourceError(f"{name} gives a {type(model).__name__}; allowed is a Keras model")
    if not model.built:
        raise SourceError(f"the Keras model of {name} has no input shape yet; build it, or call it once")
    for kind, shape, axes in (("input", model.input_shape, 4), ("output", model.output_shape, 2)):
        if isinstance(shape, (list, dict)) or len(shape) != axes:
            allowed = "[batch, height, width, 3]" if kind == "input" else "[batch, classes]"
            raise SourceError(
                f"the Keras model of {name} has the {kind} shape {shape}; allowed is one {kind} {allowed}"
            )
    _, height, width, channels = model.input_shape
    if channels != 3:
        raise SourceError(f"the Keras model of {name} takes {channels} channels; allowed are 3")
    known = {"size": (height, width)} if height and width else {}
    return Network(lambda pixels: model(pixels, training=False), known)
