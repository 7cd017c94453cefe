"""What a model source returns: the network, and the values of its recipe that the source knows.

Whether a Keras model scales pixels itself is measured: by what it does with them before any weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE
from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.network_inputs import Input, OtherInputs, split_inputs
from savedmodel_bakery.exporter.recipe.model import OBJECT_DETECTION_API
from savedmodel_bakery.exporter.sources.tables import find_tables
from savedmodel_bakery.exporter.tensor_types import NetworkOutput, NormalisedBatch, Tensor

_SHOWN_LAYERS = 5

_MEASURED_SIDE = 32  # of the measured images, for models that accept any size
_MAX_SCALED = 16.0  # pixels divided by a standard deviation of 16 or more
_MAX_MEAN, _MIN_MEAN = 135.0, 95.0  # of a dataset, subtracted from pixels that are not divided

Levels = tuple[float, float, float]
_UNSCALED: Levels = (0.0, 127.5, 255.0)

# Names that detectors give their outputs. The first of each are those of TensorFlow's Object Detection API
# (github.com/tensorflow/models, research/object_detection/core/standard_fields.py, DetectionResultFields).
_USUAL_NAMES = {
    "boxes": ("detection_boxes", "boxes", "bboxes", "pred_boxes"),
    "scores": ("detection_scores", "scores", "confidence"),
    "classes": ("detection_classes", "classes"),
    "count": ("num_detections", "count"),
    "masks": ("detection_masks",),
}


@dataclass(frozen=True)
class Network:
    """A trained network."""

    call: Callable[..., NetworkOutput]  # of a NormalisedBatch, and of the other inputs by name
    recipe: Mapping[str, Any] = field(default_factory=dict)  # values that the source knows for certain
    defaults: Mapping[str, Any] = field(default_factory=dict)  # values that are usual for such a network
    scaling_layer: str | None = None  # with which the network itself scales pixels 0..255, if it does
    output_shape: tuple[int | None, ...] | None = None  # of the only output, with the batch axis; None if not known
    application: str | None = None  # the network of keras.applications that it is, or has as a layer
    others: OtherInputs = field(default_factory=dict)  # inputs beside the image; a second image is normalised too
    tables: Sequence[Any] = ()  # lookup tables that it may read
    scales_second: bool = True  # whether it scales a second image if it scales the first

    @property
    def returns_map(self) -> bool:
        """Whether the only output is known to have a height and a width."""
        shape = self.output_shape
        return shape is not None and len(shape) == 4 and None not in shape[1:3] and shape[1:3] != (1, 1)


def from_keras_model(model: Any, name: str, layer: str | None = None, source_input: str | None = None) -> Network:
    """Return the network of a Keras model; its recipe has the input size, if that is fixed, and the scale, if known.

    The `source_input` is the name of the input for the image, or of two with a comma, if it has several.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise SourceError(f"{name} is a {type(model).__name__}: must be a Keras model or a callable tf.Module")
    if not model.built:
        raise SourceError(f"the Keras model of {name} has no input shape yet: build it or call it once")
    if layer is not None:
        model = _up_to(model, layer, name)
    if not hasattr(model, "input_shape"):  # a subclass of Model with a `call` of its own
        return Network(lambda pixels: model(pixels, training=False), tables=find_tables(model))
    if not model.inputs:  # a Sequential that has not been called
        inputs = {"image": Input(model.input_shape, "float32")}
    else:
        inputs = {tensor.name: Input(tensor.shape, tensor.dtype) for tensor in model.inputs}
    split = split_inputs(inputs, source_input, name)
    first, *seconds = (inputs[image] for image in split.images)
    place, *second_places = map(list(inputs).index, split.images)
    shape = first.shape
    recipe = recipe_from_images([first, *seconds], name)
    assert shape is not None

    def run(pixels: Tensor, **others: Tensor) -> NetworkOutput:
        by_name = split.rename(pixels, others)
        arguments = [by_name[each] for each in inputs]
        outputs = model(keras.tree.pack_sequence_as(model.input, arguments) if others else pixels, training=False)
        if isinstance(outputs, (list, tuple)):
            return dict(zip(model.output_names, outputs, strict=True))
        return outputs

    call = take_pixels(run, first, *seconds)
    outputs = getattr(model, "output", None)  # none if a Sequential has not been called
    names = outputs if isinstance(outputs, dict) else getattr(model, "output_names", ())
    recipe |= recipe_from_outputs(names)
    output_shape = getattr(outputs, "shape", None)  # of a single tensor
    if output_shape is not None and len(output_shape) == 4 and _is_channels_first(shape):
        output_shape = _with_channels_last(output_shape)
    scaling_layer = find_scaling_layer(model, place)
    defaults = {} if scaling_layer is None else {"channels": "RGB"}
    recipe |= {} if scaling_layer is None else {"scale": "0..255"}
    scales_second = all(find_scaling_layer(model, each) for each in second_places)
    if seconds and scales_second:
        recipe["image_2"] |= {"scale": "0..255"}
    tables = find_tables(model)
    return Network(
        call,
        recipe,
        defaults,
        scaling_layer,
        output_shape,
        others=split.others,
        tables=tables,
        scales_second=scales_second,
    )


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


def take_pixels(
    run: Callable[..., NetworkOutput], first: Input, second: Input | None = None
) -> Callable[..., NetworkOutput]:
    """Return a network that takes float32 [any number, height, width, channels], from one with another input.

    That may have another dtype, of which integers take rounded pixels; the channels before the height, as its outputs
    with four axes then do; and a fixed number of images. Inputs beside the images are taken as they are.
    """
    import tensorflow as tf

    assert first.shape is not None
    size = first.shape[0]

    def convert(pixels: NormalisedBatch, image: Input) -> Tensor:
        element = tf.as_dtype(image.dtype)
        images = tf.saturate_cast(tf.round(pixels), element) if element.is_integer else tf.cast(pixels, element)
        return tf.transpose(images, [0, 3, 1, 2]) if _is_channels_first(image.shape) else images

    def call(pixels: NormalisedBatch, **others: Tensor) -> NetworkOutput:
        if second is not None:
            others[SECOND_IMAGE] = convert(others[SECOND_IMAGE], second)
        images = convert(pixels, first)
        outputs = run(images, **others) if size is None else _run_in_batches(run, images, others, size)
        if not _is_channels_first(first.shape):
            return outputs
        return tf.nest.map_structure(
            lambda each: tf.transpose(each, [0, 2, 3, 1]) if each.shape.rank == 4 else each, outputs
        )

    return call


def _run_in_batches(
    run: Callable[..., NetworkOutput], images: Tensor, others: Mapping[str, Tensor], size: int
) -> NetworkOutput:
    """Run a network that takes `size` images at a time; zeros, or empty texts, fill up the last batch."""
    import tensorflow as tf

    count = tf.shape(images)[0]

    def split(tensor: Tensor) -> Tensor:
        padded = tf.pad(tensor, [[0, -count % size], *[[0, 0]] * len(tensor.shape[1:])])
        return tf.reshape(padded, [-1, size, *tensor.shape[1:]])

    def run_batch(tensors: tuple[Tensor, Mapping[str, Tensor]]) -> NetworkOutput:
        return run(tensors[0], **tensors[1])

    batches = tf.nest.map_structure(split, (images, dict(others)))
    spec = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape[1:], each.dtype), batches)
    outputs = tf.function(run_batch).get_concrete_function(spec).structured_outputs
    specs = tf.nest.map_structure(lambda each: tf.TensorSpec(each.shape, each.dtype), outputs)
    mapped = tf.map_fn(run_batch, batches, fn_output_signature=specs)

    def join(each: Tensor, spec: tf.TensorSpec) -> Tensor:
        joined = tf.reshape(each, tf.concat([[-1], tf.shape(each)[2:]], axis=0))[:count]
        return joined if spec.shape.rank is None else tf.ensure_shape(joined, [None, *spec.shape[1:]])

    return tf.nest.map_structure(join, mapped, specs)


def _is_channels_first(shape: Sequence[int | None] | None) -> bool:
    return shape is not None and len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3)


def _with_channels_last(shape: Sequence[int | None]) -> tuple[int | None, ...]:
    images, channels, height, width = shape
    return images, height, width, channels


def recipe_from_images(images: Sequence[Input], name: str) -> dict[str, Any]:
    """Return the values of a recipe that follow from the inputs of a network for one image or two."""
    recipe, *seconds = (recipe_from_shape(image.shape, name, image.dtype) for image in images)
    for second in seconds:
        colours = {"channels": "RGB"} if recipe.get("channels") == "GRAY" else {}
        recipe["image_2"] = colours | second
    return recipe


def recipe_from_shape(shape: object, name: str, dtype: str = "float32") -> dict[str, Any]:
    """Return the values of a recipe that follow from the shape and the dtype of a network's input, a batch of images.

    A network of whole numbers takes pixels as they are.
    """
    if isinstance(shape, (list, tuple)) and _is_channels_first(shape):
        shape = _with_channels_last(shape)
    if not isinstance(shape, (list, tuple)) or len(shape) != 4 or shape[3] not in (1, 3, None):
        raise SourceError(
            f"the input of {name} has shape {shape}: must be [batch, height, width, channels] or [batch, channels, "
            "height, width] with 1 or 3 channels"
        )
    _, height, width, channels = shape
    recipe: dict[str, Any] = {"size": (height, width)} if height and width else {}
    if dtype.startswith(("int", "uint")):
        recipe["scale"] = "0..255"
    return recipe | ({"channels": "GRAY"} if channels == 1 else {})


def find_scaling_layer(model: Any, place: int = 0) -> str | None:
    """Return the name of the layer or operation with which a model starts to scale pixels from 0..255.

    Its image is the input at `place`.

    Runs a black, a grey and a white image through everything before the first layer with weights, or through all of a
    model without weights: Rescaling, Normalization, or the operations that `keras.applications…preprocess_input` adds
    to a model; nested models too. None if the values that reach that layer, or the end, aren't pixels 0..255 scaled to
    a range around 0, or can't be measured.
    """
    shape = model.inputs[place].shape if model.inputs else model.input_shape
    sides = [side or _MEASURED_SIDE for side in shape[1:]]
    if not _is_channels_first(shape):
        sides[2] = shape[3] or 3
    images = np.zeros((3, *sides), np.float32) + np.float32(np.reshape(_UNSCALED, (3, 1, 1, 1)))
    levels: dict[str, Levels] = {}
    try:
        _measure(model, images, levels, place)
    except Exception:  # a layer that is part of several models, or whose code fails; the trace will say why
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


def _measure(model: Any, images: Tensor, levels: dict[str, Levels], place: int = 0) -> Tensor | None:
    """Record, by name, the levels of a black, a grey and a white image after each operation before any weights.

    Operations on other inputs than the one at `place` don't count. Returns the model's output; None if it has weights,
    or is not made of layers.
    """
    import keras

    operations = model.layers if isinstance(model, keras.Sequential) else getattr(model, "operations", None)
    if operations is None:  # a subclass of Model with a `call` of its own
        return None

    image = model.inputs[place]
    of_image = {id(image)}  # tensors

    def run_to(tensor: Any) -> Tensor:
        return keras.Model(image, tensor)(images, training=False)

    result = images
    for operation in operations:
        if isinstance(operation, keras.layers.InputLayer):
            continue
        if len(model.inputs) > 1 and not of_image.issuperset(map(id, keras.tree.flatten(operation.input))):
            continue
        of_image.update(map(id, keras.tree.flatten(operation.output)))
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
