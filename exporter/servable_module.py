"""The exported module: a tf.Module whose functions become the signatures of the SavedModel.

image ─► read_images ─► normalise ─► network ─► probabilities ─► labels, scores
         per image      ──────────── per batch ────────────
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from savedmodel_bakery.exporter import batching, labels, lazy_functions, optimisation
from savedmodel_bakery.exporter.errors import PublishError, SourceError
from savedmodel_bakery.exporter.image.per_image import read_images
from savedmodel_bakery.exporter.image.pixels import normalise
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tensor_types import (
    ConcreteFunction,
    EncodedImages,
    Flags,
    NetworkOutput,
    NormalisedBatch,
    Outputs,
    PixelBatch,
    Scores,
    Tensor,
    Text,
    Texts,
)
from savedmodel_bakery.wire import schema

CLASSIFY_METHOD = "tensorflow/serving/classify"
ENCODED_FEATURE = "image/encoded"

_IMAGES = tf.TensorSpec([None], tf.string, name="image")

# AutoGraph is off: these functions contain no Python control flow over tensors, and AutoGraph would double the time of
# a bake.
_function = functools.partial(tf.function, autograph=False)


class ServableModule(tf.Module):
    """A network with its preprocessing and labels, from the bytes of an image to labels and scores.

    Args:
        network: takes a normalised batch.
        recipe: preprocessing, optimisation and batching.
        class_names: in the order of class ids.

    Raises:
        SourceError: the network rejects such a batch or returns another shape.
        LabelError: the number of names is not the network's number of classes.
    """

    def __init__(
        self, network: Callable[[NormalisedBatch], NetworkOutput], recipe: Recipe, class_names: list[str]
    ) -> None:
        super().__init__()
        self._recipe = recipe
        self._preprocessing = recipe.preprocessing
        self._network, variables = optimisation.optimise(
            _trace(network, recipe), recipe.optimisation.steps, recipe.optimisation.precision
        )
        if recipe.batching.batch_max:
            self._network = batching.batch(self._network, variables, recipe)
        # Traced once. Traced in each signature, it would be in the file five times.
        self._read_images = _function(
            self._read_images_on_cpu, experimental_attributes=lazy_functions.LAZY
        ).get_concrete_function(tf.TensorSpec([None], tf.string))
        # tensorflow_model_server doesn't restore variables that are tracked through a Keras 3 model only. So those
        # that inference reads are tracked here, and the others, such as optimizer state, are not saved.
        self._inference_variables = variables
        labels.check_width(class_names, recipe.source.labels, self.classes)
        self._class_names = tf.constant(class_names)

    @property
    def classes(self) -> int:
        """The network's number of classes."""
        return int(self._network.structured_outputs.shape[-1])

    @_function(input_signature=[_IMAGES])
    def serving_default(self, image: EncodedImages) -> Outputs:
        """Return the best label of each image as the only output."""
        pixels, ok, error = self._read_images(image)
        with tf.control_dependencies([_fail_on_bad_image(ok, error)]):
            predictions = self._predict(tf.identity(pixels), k=1)
        return {"output_0": predictions["labels"][:, 0]}

    @_function(input_signature=[_IMAGES])
    def top_k(self, image: EncodedImages) -> Outputs:
        """Return the best labels of each image with their scores; a bad image has an error instead."""
        pixels, ok, error = self._read_images(image)
        predictions = self._predict(pixels)
        row_ok = ok[:, tf.newaxis]
        return {
            "labels": tf.where(row_ok, predictions["labels"], ""),
            "scores": tf.where(row_ok, predictions["scores"], 0.0),
            "class_ids": tf.where(row_ok, predictions["class_ids"], -1),
            "ok": ok,
            "error": error,
        }

    @_function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: Texts) -> Outputs:
        """Return the best labels of each serialized tf.Example, which must contain an image file."""
        features = tf.io.parse_example(inputs, {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)})
        pixels, ok, error = self._read_images(features[ENCODED_FEATURE])
        with tf.control_dependencies([_fail_on_bad_image(ok, error)]):
            predictions = self._predict(tf.identity(pixels))
        return {"classes": predictions["labels"], "scores": predictions["scores"]}

    @_function
    def pixels(self, pixels: PixelBatch) -> Outputs:
        """Return the best labels of images that are arrays of the network's input size."""
        batch = tf.shape(pixels)[:1]
        return {
            **self._predict(tf.cast(pixels, tf.float32)),
            "ok": tf.fill(batch, True),
            "error": tf.fill(batch, ""),
        }

    @_function(input_signature=[_IMAGES])
    def preprocess(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising."""
        pixels, ok, error = self._read_images(image)
        return {"pixels": pixels, "ok": ok, "error": error}

    @_function(input_signature=[_IMAGES])
    def preview(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising as PNG files."""
        pixels, ok, error = self._read_images(image)
        levels = tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)
        files = tf.map_fn(tf.io.encode_png, levels, fn_output_signature=tf.TensorSpec([], tf.string))
        return {"png_bytes": tf.where(ok, files, ""), "ok": ok, "error": error}

    def save(self, path: Path) -> None:
        """Write the SavedModel with all its signatures to `path`, which must not exist.

        Raises:
            PublishError: it can't be written, for example on a full disk.
        """
        signatures = {
            "serving_default": self.serving_default,
            "top_k": self.top_k,
            "classify": self.classify,
            "pixels": self.pixels.get_concrete_function(
                tf.TensorSpec([None, *self._preprocessing.size, 3], tf.uint8, name="pixels")
            ),
            "preprocess": self.preprocess,
            "preview": self.preview,
        }
        try:
            tf.saved_model.save(self, str(path), signatures=signatures)
        except tf.errors.OpError as error:
            raise PublishError(f"cannot write the SavedModel: {error.message}") from error
        _complete_meta_graph(path / "saved_model.pb")

    def _read_images_on_cpu(self, images: EncodedImages) -> tuple[PixelBatch, Flags, Texts]:
        """Read images on the CPU, where decoders run; resizing elsewhere would transfer each image separately."""
        with tf.device("CPU"):
            return read_images(images, self._preprocessing)

    def _predict(self, pixels: PixelBatch, k: int | None = None) -> Outputs:
        """Return labels string, scores float32 and class_ids int32, all [batch, k], best first."""
        batch_size = tf.shape(pixels)[0]
        if not self._recipe.batching.batch_max:
            # Some kernels reject an empty batch, so run the network on one blank image instead.
            pixels = tf.cond(batch_size > 0, lambda: pixels, lambda: tf.zeros([1, *self._preprocessing.size, 3]))
        outputs = self._network(normalise(pixels, self._preprocessing))[:batch_size]
        probabilities = tf.nn.softmax(outputs) if self._recipe.source.outputs == "logits" else outputs
        scores, class_ids = tf.math.top_k(probabilities, min(k or self._recipe.source.top_k, self.classes))
        return {"labels": tf.gather(self._class_names, class_ids), "scores": scores, "class_ids": class_ids}


def _complete_meta_graph(path: Path) -> None:
    """Set what tf.saved_model.save can't: the method name of `classify`, and lazy functions."""
    saved_model = schema.SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    meta_graph.signature_def["classify"].method_name = CLASSIFY_METHOD
    lazy_functions.propagate_lazy(meta_graph.graph_def)
    path.write_bytes(saved_model.SerializeToString(deterministic=True))


def _trace(network: Callable[[NormalisedBatch], NetworkOutput], recipe: Recipe) -> ConcreteFunction:
    """Trace the network as a function that returns one row of scores per image."""
    model, preprocessing = recipe.source.model, recipe.preprocessing
    channels = 1 if preprocessing.channels == "GRAY" else 3
    spec = tf.TensorSpec([None, *preprocessing.size, channels], tf.float32, name="normalised")

    def call_network(normalised: NormalisedBatch) -> Scores:
        outputs = tf.cast(network(normalised), tf.float32)
        return tf.squeeze(outputs, [1, 2]) if outputs.shape.rank == 4 else outputs

    try:
        traced = tf.function(call_network).get_concrete_function(spec)
    except Exception as error:  # the network's own code runs here
        raise SourceError(f"the network of {model} does not accept images {spec.shape}: {error}") from error
    shape = traced.structured_outputs.shape
    if shape.rank != 2 or shape[-1] is None:
        raise SourceError(f"the network of {model} returns shape {shape}: it must return one row of scores per image")
    return traced


def _fail_on_bad_image(ok: Flags, error: Texts) -> Tensor:
    """Return an operation that fails with INVALID_ARGUMENT, naming the first image that is not ok and its error."""
    has_bad_image = tf.logical_not(tf.reduce_all(ok))

    def describe() -> Text:  # in the branch only, as an empty batch has no first row
        first = tf.argmin(tf.cast(ok, tf.int32), output_type=tf.int32)
        return tf.strings.join(["image ", tf.strings.as_string(first), " is ", error[first]])

    message = tf.cond(has_bad_image, describe, lambda: tf.constant(""))
    return tf.debugging.Assert(tf.logical_not(has_bad_image), [message])
