"""What a model source returns: the network, and the values of its recipe that the source knows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.recipe.answers import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.sources.keras_scaling import find_scaling_layer
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch

_SHOWN_LAYERS = 5

# Names that detectors give their outputs. The first of each are those of TensorFlow's Object Detection API
# (github.com/tensorflow/models, research/object_detection/core/standard_fields.py, DetectionResultFields).
_USUAL_NAMES = {
    "boxes": ("detection_boxes", "boxes", "bboxes", "pred_boxes"),
    "scores": ("detection_scores", "scores", "confidence"),
    "classes": ("detection_classes", "classes"),
    "count": ("num_detections", "count"),
}


@dataclass(frozen=True)
class Network:
    """A trained network.

    Attributes:
        call: run the network on a normalised batch; returns a tensor, or a dict of them by name.
        recipe: the values of the recipe that the source knows for certain.
        defaults: values of the recipe that are usual for such a network.
        scaling_layer: the name of the layer with which the network itself scales pixels 0..255, if it does.
        output_shape: with the batch axis, if there is one output; None is any size, or a shape that is not known.
    """

    call: Callable[[NormalisedBatch], NetworkOutput]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    scaling_layer: str | None = None
    output_shape: tuple[int | None, ...] | None = None

    @property
    def returns_map(self) -> bool:
        """Whether the only output is known to have a height and a width."""
        shape = self.output_shape
        return shape is not None and len(shape) == 4 and None not in shape[1:3] and shape[1:3] != (1, 1)


def from_keras_model(model: Any, name: str, layer: str | None = None) -> Network:
    """Return the network of a Keras model; its recipe has the input size, if that is fixed, and the scale, if known.

    Args:
        model: built.
        name: for messages.
        layer: the layer whose output is used; None for the model's own output.

    Raises:
        SourceError: it doesn't map one batch of images to outputs with names, or has no such layer.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise SourceError(f"{name} returned a {type(model).__name__}: must be a Keras model or a callable tf.Module")
    if not model.built:
        raise SourceError(f"the Keras model of {name} has no input shape yet: build it or call it once")
    if layer is not None:
        model = _up_to(model, layer, name)
    if not hasattr(model, "input_shape"):  # a subclass of Model with a `call` of its own
        return Network(lambda pixels: model(pixels, training=False))
    recipe = recipe_from_shape(model.input_shape, name)

    def call(pixels: NormalisedBatch) -> NetworkOutput:
        outputs = model(pixels, training=False)
        if isinstance(outputs, (list, tuple)):
            return dict(zip(model.output_names, outputs, strict=True))
        return outputs

    outputs = getattr(model, "output", None)  # none if a Sequential has not been called
    names = outputs if isinstance(outputs, dict) else getattr(model, "output_names", ())
    recipe |= recipe_from_outputs(names)
    shape = getattr(outputs, "shape", None)  # of a single tensor
    scaling_layer = find_scaling_layer(model)
    if scaling_layer is None:
        return Network(call, recipe, output_shape=shape)
    return Network(call, {**recipe, "scale": "0..255"}, {"channels": "RGB"}, scaling_layer, shape)


def recipe_from_outputs(names: Collection[str]) -> dict[str, Any]:
    """Return the values of a recipe that follow from the names of a network's outputs: whether it is a detector."""
    roles = usual_roles(names)
    if not {"boxes", "scores"} <= roles.keys():
        return {}
    return {"task": "detect"} | ({"boxes": OBJECT_DETECTION_API} if roles["boxes"] == "detection_boxes" else {})


def usual_roles(names: Collection[str]) -> dict[str, str]:
    """Return the outputs of a detector that have a usual name, by role."""
    return {
        role: next(name for name in usual if name in names)
        for role, usual in _USUAL_NAMES.items()
        if not set(usual).isdisjoint(names)
    }


def listed(names: Collection[str]) -> str:
    """Return names in quotes, for messages."""
    return ", ".join(f'"{name}"' for name in sorted(names))


def _up_to(model: Any, layer: str, name: str) -> Any:
    """Return the part of a Keras model that ends with a layer."""
    import keras

    names = [each.name for each in model.layers]
    if layer not in names:
        raise SourceError(f"{name} has no layer {layer!r}; its last ones are {', '.join(names[-_SHOWN_LAYERS:])}")
    try:
        return keras.Model(model.inputs, model.get_layer(layer).output)
    except (AttributeError, ValueError) as error:  # a subclass of Model has no graph of layers
        raise SourceError(f"cannot use layer {layer!r} of {name}: {error}") from error


def recipe_from_shape(shape: object, name: str) -> dict[str, Any]:
    """Return the values of a recipe that follow from the shape of a network's input.

    Raises:
        SourceError: it isn't the shape of one batch of images with one or three channels.
    """
    if not isinstance(shape, (list, tuple)) or len(shape) != 4 or shape[3] not in (1, 3, None):
        raise SourceError(
            f"the input of {name} has shape {shape}: must be [batch, height, width, channels] with 1 or 3 channels"
        )
    _, height, width, channels = shape
    recipe: dict[str, Any] = {"size": (height, width)} if height and width else {}
    return recipe | ({"channels": "GRAY"} if channels == 1 else {})
