"""What a model source hands over: the network and what is known of its recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from savedmodel_bakery.exporter.errors import SourceError


@dataclass(frozen=True)
class SourceOptions:
    """What may be said of a source beside its name; a source that has no use for one refuses it.

    Attributes:
        weights: of a Keras application: `none`, `imagenet` or a path.
        signature: of a SavedModel.
        input: alias of that signature's input.
        output: alias of that signature's output.
    """

    weights: str | None = None
    signature: str | None = None
    input: str | None = None
    output: str | None = None

    @staticmethod
    def of_recipe(values: Mapping[str, Any]) -> SourceOptions:
        """Those that a recipe states."""
        return SourceOptions(
            weights=values.get("weights"),
            signature=values.get("source_signature"),
            input=values.get("source_input"),
            output=values.get("source_output"),
        )

    def refuse(self, model: str, *, but: Sequence[str] = ()) -> None:
        """Refuse options that `model` has no use for.

        Raises:
            SourceError: one was given.
        """
        flags = {"weights": "--weights"} | {name: f"--source-{name}" for name in ("signature", "input", "output")}
        given = [flags[name] for name in flags if getattr(self, name) is not None and name not in but]
        if given:
            raise SourceError(f"{', '.join(given)} cannot be used with model {model}")


@dataclass(frozen=True)
class Network:
    """A trained network.

    Attributes:
        call: from float32 [batch, height, width, channels], normalised, to float32 [batch, classes] or
            [batch, 1, 1, classes].
        recipe: values of the recipe that are known of it, not guessed.
    """

    call: Callable[[Any], Any]
    recipe: Mapping[str, Any] = field(default_factory=dict)


def of_keras_model(model: Any, name: str) -> Network:
    """The network of a Keras model; the size of its input is known where it is fixed.

    Raises:
        SourceError: it doesn't take one batch of images or doesn't give one row of numbers an image.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise SourceError(f"{name} gives a {type(model).__name__}; allowed are a Keras model and a callable tf.Module")
    if not model.built:
        raise SourceError(f"the Keras model of {name} has no input shape yet; build it, or call it once")
    if isinstance(model.output_shape, (list, dict)):
        raise SourceError(f"the Keras model of {name} has several outputs; allowed is one, [batch, classes]")
    known = check_image_shape(model.input_shape, name)
    return Network(lambda pixels: model(pixels, training=False), known)


def check_image_shape(shape: object, name: str) -> dict[str, Any]:
    """What the shape of a network's input tells of its recipe.

    Raises:
        SourceError: it isn't that of one batch of images of one or three channels.
    """
    if not isinstance(shape, (list, tuple)) or len(shape) != 4 or shape[3] not in (1, 3, None):
        raise SourceError(
            f"the input of {name} has the shape {shape}; allowed is one input [batch, height, width, channels] with "
            "1 or 3 channels"
        )
    _, height, width, channels = shape
    known: dict[str, Any] = {"size": (height, width)} if height and width else {}
    return known | ({"channels": "GRAY"} if channels == 1 else {})
