"""The exported module: a tf.Module whose functions become the signatures of the SavedModel.

images ─► read_images ─► normalise ─► network ─► task ─► scores, class ids ─► labels
          per image      ──────────────── per run ─────────────────            per request
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from savedmodel_bakery.exporter import batching, lazy_functions, optimisation
from savedmodel_bakery.exporter.errors import PublishError, SourceError
from savedmodel_bakery.exporter.image.per_image import EMPTY, read_images
from savedmodel_bakery.exporter.image.pixels import normalise
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.runs import compute_in_runs
from savedmodel_bakery.exporter.tasks import Task, choose_task
from savedmodel_bakery.exporter.tensor_types import (
    ConcreteFunction,
    EncodedImages,
    Flags,
    Integer,
    NetworkOutput,
    NormalisedBatch,
    Outputs,
    PixelBatch,
    Rows,
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


class _Answer(NamedTuple):
    """What a signature computes from the scores of all labels.

    Attributes:
        compute: returns tensors [images, …].
        specs: of these, see `compute_in_runs`.
    """

    compute: Callable[[Scores], Sequence[Tensor]]
    specs: Sequence[tf.TensorSpec]


class ServableModule(tf.Module):
    """A network with its preprocessing and labels, from the bytes of an image to labels and scores.

    Args:
        network: takes a normalised batch.
        recipe: preprocessing, optimisation and batching.
        class_names: in the order of class ids.

    Raises:
        SourceError: the network rejects such a batch or returns another shape.
        LabelError: the names don't fit the network and its task.
        RecipeError: the recipe doesn't fit the task.
    """

    def __init__(
        self, network: Callable[[NormalisedBatch], NetworkOutput], recipe: Recipe, class_names: list[str]
    ) -> None:
        super().__init__()
        self._recipe = recipe
        self._preprocessing = recipe.preprocessing
        self._per_run = recipe.batching.rows_per_read
        self._network, variables = optimisation.optimise(
            _trace(network, recipe), recipe.optimisation.steps, recipe.optimisation.precision
        )
        if recipe.batching.batch_max:
            self._network = batching.batch(self._network, variables, recipe)
        # Traced once. Traced in each signature, it would be in the file five times.
        self._read_images = _function(
            self._read_images_on_cpu, experimental_attributes=lazy_functions.LAZY
        ).get_concrete_function(
            tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
        )
        # tensorflow_model_server doesn't restore variables that are tracked through a Keras 3 model only. So those
        # that inference reads are tracked here, and the others, such as optimizer state, are not saved.
        self._inference_variables = variables
        self._task = choose_task(recipe.answers, int(self._network.structured_outputs.shape[-1]), class_names)
        self._class_names = tf.constant(class_names)
        self._k = min(recipe.answers.top_k, len(class_names))

    @property
    def task(self) -> Task:
        """What the network's outputs mean."""
        return self._task

    @_function(input_signature=[_IMAGES])
    def serving_default(self, image: EncodedImages) -> Outputs:
        """Return the label of each image as the only output."""
        label = _Answer(lambda scores: [self._task.default_ids(scores)], [tf.TensorSpec([], tf.int32)])
        (class_ids,) = self._predict_all(image, label)
        return {"output_0": tf.gather(self._class_names, class_ids)}

    @_function(input_signature=[_IMAGES])
    def top_k(self, image: EncodedImages) -> Outputs:
        """Return the best labels of each image with their scores; a bad image has an error instead."""
        rows = _rows_with_bytes(image)
        errors, (scores, class_ids) = self._predict(
            rows, lambda rows: self._read_images(image, rows, self._per_run), self._best
        )
        ok, error = _ok_and_error(image, rows, errors)
        class_ids = _place(class_ids, ok, default=-1)
        labels = tf.gather(self._class_names, tf.maximum(class_ids, 0))
        return {
            "labels": tf.where(ok[:, tf.newaxis], labels, ""),
            "scores": _place(scores, ok, default=0.0),
            "class_ids": class_ids,
            "ok": ok,
            "error": error,
        }

    @_function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: Texts) -> Outputs:
        """Return the best labels of each serialized tf.Example, which must contain an image file."""
        features = tf.io.parse_example(inputs, {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)})
        scores, class_ids = self._predict_all(features[ENCODED_FEATURE], self._best)
        return {"classes": tf.gather(self._class_names, class_ids), "scores": scores}

    @_function
    def pixels(self, pixels: PixelBatch) -> Outputs:
        """Return the best labels of images that are arrays of the network's input size."""
        batch = tf.shape(pixels)[0]

        def read(rows: Rows) -> tuple[PixelBatch, Texts]:
            rows = rows[: self._per_run]
            return tf.cast(tf.gather(pixels, rows), tf.float32), tf.fill(tf.shape(rows), "")

        error, (scores, class_ids) = self._predict(tf.range(batch), read, self._best)
        return {
            "labels": tf.gather(self._class_names, class_ids),
            "scores": scores,
            "class_ids": class_ids,
            "ok": tf.fill([batch], True),
            "error": error,
        }

    @_function(input_signature=[_IMAGES])
    def preprocess(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising."""
        rows = _rows_with_bytes(image)
        with tf.control_dependencies([self._fail_on_large_output(image)]):
            errors, (pixels,) = compute_in_runs(
                rows,
                lambda rows: self._read_images(image, rows, tf.size(rows)),
                lambda pixels: [pixels],
                [tf.TensorSpec([*self._preprocessing.size, 3], tf.float32)],
            )
        ok, error = _ok_and_error(image, rows, errors)
        return {"pixels": _place(pixels, ok, default=0.0), "ok": ok, "error": error}

    @_function(input_signature=[_IMAGES])
    def preview(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising as PNG files."""

        def encode(pixels: PixelBatch) -> list[Tensor]:
            levels = tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)
            return [tf.map_fn(tf.io.encode_png, levels, fn_output_signature=tf.TensorSpec([], tf.string))]

        rows = _rows_with_bytes(image)
        errors, (files,) = compute_in_runs(
            rows, lambda rows: self._read_images(image, rows, self._per_run), encode, [tf.TensorSpec([], tf.string)]
        )
        ok, error = _ok_and_error(image, rows, errors)
        return {"png_bytes": _place(files, ok, default=""), "ok": ok, "error": error}

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

    def _read_images_on_cpu(self, images: EncodedImages, rows: Rows, max_readable: Integer) -> tuple[PixelBatch, Texts]:
        """Read images on the CPU, where decoders run; resizing elsewhere would transfer each image separately."""
        with tf.device("CPU"):
            # Some kernels reject an empty batch; BatchFunction doesn't.
            min_images = 0 if self._recipe.batching.batch_max else 1
            return read_images(images, rows, max_readable, self._preprocessing, min_images=min_images)

    @property
    def _best(self) -> _Answer:
        """The best scores of each image and their class ids."""
        specs = [tf.TensorSpec([self._k], tf.float32), tf.TensorSpec([self._k], tf.int32)]
        return _Answer(lambda scores: tf.math.top_k(scores, self._k), specs)

    def _predict_all(self, images: EncodedImages, answer: _Answer) -> Sequence[Tensor]:
        """Return the answers for all images; fail on a bad image."""

        def read(rows: Rows) -> tuple[PixelBatch, Texts]:
            rows = rows[: self._per_run]  # no further, as the first bad image ends the request
            pixels, errors = self._read_images(images, rows, self._per_run)
            with tf.control_dependencies([_fail_on_bad_image(rows, errors)]):
                return tf.identity(pixels), errors

        _, answers = self._predict(tf.range(tf.size(images)), read, answer)
        return answers

    def _predict(
        self, rows: Rows, read: Callable[[Rows], tuple[PixelBatch, Texts]], answer: _Answer
    ) -> tuple[Texts, Sequence[Tensor]]:
        """Return the errors of rows, and the answers for the readable ones; see `compute_in_runs`."""

        def compute(pixels: PixelBatch) -> Sequence[Tensor]:
            outputs = self._network(normalise(pixels, self._preprocessing))
            return answer.compute(self._task.scores(outputs))

        return compute_in_runs(rows, read, compute, answer.specs)

    def _fail_on_large_output(self, images: EncodedImages) -> Tensor:
        """Return an operation that fails with INVALID_ARGUMENT if the pixels of a batch would take too much memory."""
        height, width = self._preprocessing.size
        max_images = min(max(self._preprocessing.max_pixels // (height * width), 1), tf.int32.max)
        message = f"too many images to return their pixels: a request can have at most {max_images}"
        return tf.debugging.Assert(tf.size(images) <= max_images, [message])


def _rows_with_bytes(images: EncodedImages) -> Rows:
    """Return the numbers of the images that aren't empty."""
    return tf.cast(tf.where(tf.strings.length(images) > 0)[:, 0], tf.int32)


def _ok_and_error(images: EncodedImages, rows: Rows, errors: Texts) -> tuple[Flags, Texts]:
    """Return the outputs `ok` and `error` of a batch from the errors of `rows`; its other images are empty."""
    empty = tf.fill(tf.shape(images), EMPTY)
    error = tf.tensor_scatter_nd_update(empty, rows[:, tf.newaxis], errors)
    return tf.equal(error, ""), error


def _place(values: Tensor, ok: Flags, *, default: float | str) -> Tensor:
    """Return the values of the images that are ok in the rows of the whole batch, and `default` in the others."""
    shape = tf.concat([tf.shape(ok), tf.shape(values)[1:]], axis=0)
    blank = tf.fill(shape, tf.constant(default, values.dtype))
    return tf.ensure_shape(tf.tensor_scatter_nd_update(blank, tf.where(ok), values), [None, *values.shape[1:]])


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
        if outputs.shape.rank == 1:  # one output per image
            return outputs[:, tf.newaxis]
        return tf.squeeze(outputs, [1, 2]) if outputs.shape.rank == 4 else outputs

    try:
        traced = tf.function(call_network).get_concrete_function(spec)
    except Exception as error:  # the network's own code runs here
        raise SourceError(f"the network of {model} does not accept images {spec.shape}: {error}") from error
    shape = traced.structured_outputs.shape
    if shape.rank != 2 or shape[-1] is None:
        raise SourceError(f"the network of {model} returns shape {shape}: it must return one row of scores per image")
    return traced


def _fail_on_bad_image(rows: Rows, errors: Texts) -> Tensor:
    """Return an operation that fails with INVALID_ARGUMENT if a row has an error, naming the first of them."""
    ok = tf.equal(errors, "")

    def describe() -> Text:  # in the branch only, as an empty batch has no first row
        first = tf.argmin(tf.cast(ok, tf.int32), output_type=tf.int32)
        return tf.strings.join(["image ", tf.strings.as_string(rows[first]), " is ", errors[first]])

    all_ok = tf.reduce_all(ok)
    message = tf.cond(all_ok, lambda: tf.constant(""), describe)
    return tf.debugging.Assert(all_ok, [message])
