"""The servable: a tf.Module whose functions become the signatures of the SavedModel.

image ─► read_images ─► normalise ─► network ─► probabilities ─► labels, scores
         per image      ──────────── per batch ────────────
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter import batching, labels, optimisation
from savedmodel_bakery.exporter import lazy_functions as late_functions
from savedmodel_bakery.exporter.errors import SourceError
from savedmodel_bakery.exporter.image import per_image as isolation
from savedmodel_bakery.exporter.image import pixels
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.wire import schema

CLASSIFY_METHOD = "tensorflow/serving/classify"
ENCODED_FEATURE = "image/encoded"

_IMAGES = tf.TensorSpec([None], tf.string, name="image")

# Nothing here is Python's own control flow over tensors; AutoGraph's look for it would take half of a bake.
_function = functools.partial(tf.function, autograph=False)


class ServableModule(tf.Module):
    """A network with everything around it, from an image's bytes to labels.

    Args:
        network: from float32 [batch, height, width, channels], normalised, to numbers [batch, classes] or
            [batch, 1, 1, classes].
        recipe: what happens before and after it.
        names: class names in the order of class ids.

    Raises:
        SourceError: the network doesn't take or give that.
        LabelError: the number of names is not the network's number of classes.
    """

    def __init__(self, network: Callable[[Any], Any], recipe: Recipe, names: list[str]) -> None:
        super().__init__()
        self._recipe = recipe
        self._network, variables = optimisation.optimise(
            _trace(network, recipe), recipe.optimisation.steps, recipe.optimisation.precision
        )
        if recipe.batching.batch_max:
            self._network = batching.batch(self._network, variables, recipe)
        # Traced once: as part of each signature it would be five times in the file.
        self._read_images = _function(
            self._read_on_cpu, experimental_attributes=late_functions.LATE
        ).get_concrete_function(tf.TensorSpec([None], tf.string))
        # A Keras 3 model tracks its variables in a way that tensorflow_model_server doesn't restore; so the ones
        # that inference reads are tracked here, and optimizer state and the like stay behind.
        self._variables_read = variables
        labels.check_width(names, recipe.source.labels, self.classes)
        self._names = tf.constant(names)

    @property
    def classes(self) -> int:
        """How many classes the network tells apart."""
        return int(self._network.structured_outputs.shape[-1])

    @_function(input_signature=[_IMAGES])
    def serving_default(self, image: Any) -> dict[str, Any]:
        """The label of each image, and nothing else."""
        found, ok, error = self._read_images(image)
        with tf.control_dependencies([_refuse_bad_rows(ok, error)]):
            answer = self._answer(tf.identity(found), k=1)
        return {"output_0": answer["labels"][:, 0]}

    @_function(input_signature=[_IMAGES])
    def top_k(self, image: Any) -> dict[str, Any]:
        """The best labels of each image with their scores; a bad image fails alone."""
        found, ok, error = self._read_images(image)
        answer = self._answer(found)
        row = ok[:, tf.newaxis]
        return {
            "labels": tf.where(row, answer["labels"], ""),
            "scores": tf.where(row, answer["scores"], 0.0),
            "class_ids": tf.where(row, answer["class_ids"], -1),
            "ok": ok,
            "error": error,
        }

    @_function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: Any) -> dict[str, Any]:
        """The best labels of each serialized tf.Example that holds an image file."""
        features = tf.io.parse_example(inputs, {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)})
        found, ok, error = self._read_images(features[ENCODED_FEATURE])
        with tf.control_dependencies([_refuse_bad_rows(ok, error)]):
            answer = self._answer(tf.identity(found))
        return {"classes": answer["labels"], "scores": answer["scores"]}

    @_function
    def pixels(self, pixels: Any) -> dict[str, Any]:
        """The best labels of images that are arrays already, of the network's own size."""
        batch = tf.shape(pixels)[:1]
        return {
            **self._answer(tf.cast(pixels, tf.float32)),
            "ok": tf.fill(batch, True),
            "error": tf.fill(batch, ""),
        }

    @_function(input_signature=[_IMAGES])
    def preprocess(self, image: Any) -> dict[str, Any]:
        """What the network is shown of each image, before normalising."""
        found, ok, error = self._read_images(image)
        return {"pixels": found, "ok": ok, "error": error}

    @_function(input_signature=[_IMAGES])
    def preview(self, image: Any) -> dict[str, Any]:
        """The same as a picture."""
        found, ok, error = self._read_images(image)
        levels = tf.cast(tf.clip_by_value(tf.round(found), 0, 255), tf.uint8)
        pictures = tf.map_fn(tf.io.encode_png, levels, fn_output_signature=tf.TensorSpec([], tf.string))
        return {"png_bytes": tf.where(ok, pictures, ""), "ok": ok, "error": error}

    def save(self, path: Path) -> None:
        """Write the SavedModel with all its signatures to `path`, which must not exist."""
        signatures = {
            "serving_default": self.serving_default,
            "top_k": self.top_k,
            "classify": self.classify,
            "pixels": self.pixels.get_concrete_function(
                tf.TensorSpec([None, *self._recipe.preprocessing.size, 3], tf.uint8, name="pixels")
            ),
            "preprocess": self.preprocess,
            "preview": self.preview,
        }
        tf.saved_model.save(self, str(path), signatures=signatures)
        _finish(path / "saved_model.pb")

    def _read_on_cpu(self, image: Any) -> Any:
        """Where files are decoded; what could run elsewhere, as resizing, would send each image there by itself."""
        with tf.device("CPU"):
            return isolation.read_images(image, self._recipe.preprocessing)

    def _answer(self, found: Any, k: int | None = None) -> dict[str, Any]:
        """Labels string, scores float32 and class_ids int32, all [batch, k], best first."""
        rows = tf.shape(found)[0]
        if not self._recipe.batching.batch_max:
            # Not every kernel takes an empty batch, so the network is then given one blank image.
            found = tf.cond(rows > 0, lambda: found, lambda: tf.zeros([1, *self._recipe.preprocessing.size, 3]))
        given = self._network(pixels.normalise(found, self._recipe.preprocessing))[:rows]
        probabilities = tf.nn.softmax(given) if self._recipe.source.outputs == "logits" else given
        scores, class_ids = tf.math.top_k(probabilities, min(k or self._recipe.source.top_k, self.classes))
        return {"labels": tf.gather(self._names, class_ids), "scores": scores, "class_ids": class_ids}


def _finish(file: Path) -> None:
    """Give a saved model what tf.saved_model.save can't: the method of `classify`, and functions made ready late."""
    saved = schema.SavedModel.FromString(file.read_bytes())
    (meta_graph,) = saved.meta_graphs
    meta_graph.signature_def["classify"].method_name = CLASSIFY_METHOD
    late_functions.keep_late(meta_graph.graph_def)
    file.write_bytes(saved.SerializeToString(deterministic=True))


def _trace(network: Callable[[Any], Any], recipe: Recipe) -> Any:
    """The network as a concrete function to float32 [batch, classes]."""
    channels = 1 if recipe.preprocessing.channels == "GRAY" else 3
    spec = tf.TensorSpec([None, *recipe.preprocessing.size, channels], tf.float32, name="normalised")

    def rows(normalised: Any) -> Any:
        given = tf.cast(network(normalised), tf.float32)
        return tf.squeeze(given, [1, 2]) if given.shape.rank == 4 else given

    try:
        traced = tf.function(rows).get_concrete_function(spec)
    except Exception as error:  # the network's own code runs here
        raise SourceError(f"the network of {recipe.source.model} does not take images {spec.shape}: {error}") from error
    shape = traced.structured_outputs.shape
    if shape.rank != 2 or shape[-1] is None:
        raise SourceError(f"the network of {recipe.source.model} gives {shape}; allowed is one row of numbers an image")
    return traced


def _refuse_bad_rows(ok: Any, error: Any) -> Any:
    """An operation that fails with INVALID_ARGUMENT, naming the first row where `ok` bool [batch] is false."""
    bad = tf.logical_not(tf.reduce_all(ok))

    def describe() -> Any:  # only here, as an empty batch has no first row
        first = tf.argmin(tf.cast(ok, tf.int32), output_type=tf.int32)
        return tf.strings.join(["image ", tf.strings.as_string(first), " is ", error[first]])

    message = tf.cond(bad, describe, lambda: tf.constant(""))
    return tf.debugging.Assert(tf.logical_not(bad), [message])
