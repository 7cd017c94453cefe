"""Other inputs beside the image, in the graph: their rows, a second image, and the features that state them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import tensorflow as tf

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE, SECOND_PIXELS
from savedmodel_bakery.exporter.image.per_image import ReadImages
from savedmodel_bakery.exporter.network_inputs import OtherInputs
from savedmodel_bakery.exporter.signatures import ENCODED_FEATURE, SECOND_ENCODED_FEATURE
from savedmodel_bakery.exporter.tensor_types import Integer, Tensor, Texts


def input_specs(
    takes: Literal["images", "examples", "pixels"], sizes: Sequence[tuple[int, int]], others: OtherInputs
) -> dict[str, tf.TensorSpec]:
    """Return the inputs by alias of a signature that takes files, tf.Examples or pixels; that of the image is first.

    The `sizes` are those of the pixels of an image and of a second one.
    """
    if takes == "examples":
        return {"inputs": tf.TensorSpec([None], tf.string, name="inputs")}
    if takes == "pixels":
        alias, second = "pixels", SECOND_PIXELS
        image, second_image = (tf.TensorSpec([None, *size, 3], tf.uint8) for size in sizes)
    else:
        alias, second = "image", SECOND_IMAGE
        image = second_image = tf.TensorSpec([None], tf.string)
    specs = {alias: image}
    for name, other in others.items():
        if name == SECOND_IMAGE:
            specs[second] = second_image
        else:
            specs[name] = tf.TensorSpec([None, *other.shape], other.dtype)
    return {alias: tf.TensorSpec(spec.shape, spec.dtype, name=alias) for alias, spec in specs.items()}


def check_rows(inputs: Mapping[str, Tensor], specs: Mapping[str, tf.TensorSpec]) -> dict[str, Tensor]:
    """Return inputs whose shapes the run checks, as a server may feed any; all must have a row per image.

    Operations would misread or reshape other shapes. The image is the first of the `specs`.
    """
    checked = {alias: tf.ensure_shape(inputs[alias], spec.shape) for alias, spec in specs.items()}
    image, *others = checked
    if not others:
        return checked
    with tf.control_dependencies([_fail_on_other_rows(alias, checked[alias], checked[image]) for alias in others]):
        return {alias: tf.identity(tensor) for alias, tensor in checked.items()}


def filled(tensor: Tensor, count: Integer) -> Tensor:
    """Return [count, …] with zeros, or empty texts, after the rows of a tensor, for blank images."""
    blank = tf.zeros(tf.concat([[count - tf.shape(tensor)[0]], tf.shape(tensor)[1:]], axis=0), tensor.dtype)
    return tf.ensure_shape(tf.concat([tensor, blank], axis=0), [None, *tensor.shape[1:]])


def keep_pairs(first: ReadImages, second: ReadImages) -> ReadImages:
    """Return first images without those whose second image can't be read, and with the reason as their error.

    The second images are those of the first ones that could be read; as many blank images follow them.
    """
    is_pair = tf.equal(second.errors, "")
    places = tf.where(is_pair)[:, 0]
    count = tf.shape(second.pixels)[0]
    reasons = tf.where(is_pair, "", tf.strings.join(["paired with an image_2 that is ", second.errors]))
    return ReadImages(
        filled(tf.gather(first.pixels, places), count),
        tf.maximum(filled(tf.gather(first.sizes, places), count), 1),
        tf.tensor_scatter_nd_update(first.errors, tf.where(tf.equal(first.errors, "")), reasons),
    )


def _fail_on_other_rows(alias: str, tensor: Tensor, images: Tensor) -> Tensor:
    """Return an operation that fails with INVALID_ARGUMENT if an input has another number of rows than the images."""
    rows, wanted = tf.shape(tensor)[0], tf.shape(images)[0]
    counts = tf.strings.as_string(rows), tf.strings.as_string(wanted)
    message = tf.strings.join([f'input "{alias}" has ', counts[0], " rows: must have ", counts[1], ", one per image"])
    return tf.debugging.Assert(tf.equal(rows, wanted), [message])


def parse_examples(examples: Texts, others: OtherInputs) -> dict[str, Tensor]:
    """Return the inputs by alias from serialized tf.Examples, whose features have their names.

    Examples have float32, int64 and string only: whole numbers and bool are int64 there.
    """
    features = {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)}
    for name, other in others.items():
        if name == SECOND_IMAGE:
            features[SECOND_ENCODED_FEATURE] = tf.io.FixedLenFeature([], tf.string)
        else:
            dtype = tf.as_dtype(other.dtype)
            stated = tf.float32 if dtype.is_floating else tf.string if dtype == tf.string else tf.int64
            features[name] = tf.io.FixedLenFeature(other.shape, stated)
    parsed = tf.io.parse_example(examples, features)
    inputs = {"image": parsed[ENCODED_FEATURE]}
    for name, other in others.items():
        if name == SECOND_IMAGE:
            inputs[name] = parsed[SECOND_ENCODED_FEATURE]
        else:
            inputs[name] = parsed[name] if other.dtype == "string" else tf.cast(parsed[name], other.dtype)
    return inputs
