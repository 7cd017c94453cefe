"""The exported module: a tf.Module whose functions become the signatures of the SavedModel.

images ─► read_images ─► normalise ─► network ─► task ─► answers, errors
          per image      ─────────── per run ──────────  per request
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from savedmodel_bakery.answers.other_inputs import SECOND_IMAGE, SECOND_PIXELS
from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter import network_outputs, optimisation
from savedmodel_bakery.exporter.calibration import NO_CALIBRATION, Calibration, extend
from savedmodel_bakery.exporter.graph_functions import graph_function, lazy_function, merge_constants, propagate_lazy
from savedmodel_bakery.exporter.image.per_image import ReadImages, read_images
from savedmodel_bakery.exporter.image.pixels import normalise
from savedmodel_bakery.exporter.network_inputs import OtherInputs
from savedmodel_bakery.exporter.recipe import Preprocessing, Recipe
from savedmodel_bakery.exporter.runs import batch_calls, compute_in_runs, fail_on_bad_image, place_rows, rows_with_bytes
from savedmodel_bakery.exporter.signature_inputs import (
    check_rows,
    filled,
    input_specs,
    keep_pairs,
    parse_examples,
)
from savedmodel_bakery.exporter.tasks.choose import ClassNames, choose_task
from savedmodel_bakery.exporter.tasks.task import Signature
from savedmodel_bakery.exporter.tensor_types import (
    EncodedImages,
    Integer,
    NetworkOutput,
    Outputs,
    PixelBatch,
    Rows,
    Tensor,
    Texts,
)
from savedmodel_bakery.tensorflow_import import startup_log_hidden
from savedmodel_bakery.wire import schema

_METHODS = {"classify", "regress"}  # signatures that are called by the methods of their names
_IMAGES = tf.TensorSpec([None], tf.string, name="image")


@dataclass(frozen=True)
class Quantisation:
    """How a network was quantised."""

    coverage: optimisation.Coverage
    speeds: tuple[optimisation.Speed, ...]  # on this machine
    photos: int  # number of photos that it was calibrated with
    available_photos: int  # number of photos that can be read, including those that are held back
    unreadable_photos: Mapping[str, str]  # reasons by key of the photos that were skipped


class ServableModule(tf.Module):
    """A network with its preprocessing and its task, from the bytes of an image to answers.

    Class names are in the order of class ids, empty for an id without a name. Of `calibration` it keeps the photos that
    could be decoded. Inputs of the network beside the image, `others`, are inputs of the signatures too. Of the lookup
    tables, `tables`, it saves those that the network reads.
    """

    def __init__(
        self,
        network: Callable[..., NetworkOutput],
        recipe: Recipe,
        class_names: ClassNames,
        calibration: Calibration = NO_CALIBRATION,
        *,
        others: OtherInputs = MappingProxyType({}),
        tables: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self._others = dict(others)
        self._preprocessing, self._second_preprocessing = recipe.preprocessing, recipe.second_preprocessing
        self._per_run = recipe.batching.rows_per_read
        traced, is_int8 = network_outputs.trace(network, recipe, others), recipe.optimisation.is_int8
        steps, precision = recipe.optimisation.steps, recipe.optimisation.precision
        optimised, variables = optimisation.optimise(traced, steps, "float32" if is_int8 else precision)
        ends_in_sigmoid = network_outputs.ends_in_sigmoid(optimised)
        shapes = network_outputs.shapes(optimised)
        dtypes = network_outputs.dtypes(optimised)
        self.task = choose_task(recipe, shapes, class_names, dtypes=dtypes, ends_in_sigmoid=ends_in_sigmoid)
        limit = {} if self.task.max_side is None else {"max_side": self.task.max_side}
        # Some kernels reject an empty batch; BatchFunction doesn't.
        min_images = 0 if recipe.batching.batch_max else 1
        self._read_images = _image_reader(self._preprocessing, min_images=min_images, **limit)
        self._read_second = _image_reader(self._second_preprocessing, min_images=min_images, **limit)
        self.calibration = calibration
        self.quantisation: Quantisation | None = None
        if is_int8:
            with startup_log_hidden():  # the first run of the image graph logs that oneDNN has no kernels for uint8
                self.calibration, images = calibration.decode(self._read_normalised)
            int8, int8_variables, coverage = optimisation.optimise_int8(traced, steps, extend(images))
            speeds = optimisation.compare_speed(optimised, int8, images[0])  # reads the variables of both
            self.quantisation = Quantisation(
                coverage,
                tuple(speeds),
                len(self.calibration.photos),
                self.calibration.count,
                self.calibration.unreadable,
            )
            optimised, variables = int8, int8_variables
        self._network = batch_calls(optimised, variables, recipe) if recipe.batching.batch_max else optimised
        # tensorflow_model_server doesn't restore variables that are tracked through a Keras 3 model only. So those
        # that inference reads are tracked here, and the others, such as optimizer state, are not saved.
        self._inference_variables = variables
        captured = {id(handle) for handle, _ in traced.graph.captures}
        self._tables = [table for table in tables if id(table.resource_handle) in captured]
        signatures = self.task.signatures()
        sizes = self._preprocessing.size, self._second_preprocessing.size
        self._specs = {name: input_specs(each.takes, sizes, self._others) for name, each in signatures.items()}
        answers = {name: self._function_of(signature, self._specs[name]) for name, signature in signatures.items()}
        functions = {**answers, "preprocess": self.preprocess, "preview": self.preview}
        if recipe.second_image.image_2:
            functions["preprocess_2"] = self.preprocess_2
        # A proxy, because TensorFlow would save functions in a dict a second time, beside the signatures.
        self.functions: Mapping[str, Any] = MappingProxyType(functions)

    def _function_of(self, signature: Signature, specs: Mapping[str, tf.TensorSpec]) -> Any:
        """Return the function of a signature, which takes its inputs by alias."""
        answer = self._answer_all if signature.rejects_bad_images else self._answer

        def answer_images(image: EncodedImages, **others: Tensor) -> Outputs:
            return answer(check_rows({"image": image, **others}, specs), signature)

        def answer_examples(inputs: Texts) -> Outputs:
            return answer(parse_examples(tf.ensure_shape(inputs, [None]), self._others), signature)

        def answer_pixels(pixels: PixelBatch, **others: Tensor) -> Outputs:
            return self._answer_pixels(check_rows({"pixels": pixels, **others}, specs), signature)

        functions = {"images": answer_images, "examples": answer_examples, "pixels": answer_pixels}
        return graph_function(functions[signature.takes])

    def _answer(self, inputs: Mapping[str, Tensor], signature: Signature) -> Outputs:
        """Return the answers for images; a bad image has an error instead."""
        images = inputs["image"]
        rows = rows_with_bytes(images)
        errors, answers = self._predict(rows, lambda rows: self._read(inputs, rows), signature)
        blanks = {alias: column.blank for alias, column in signature.columns.items()}
        return place_rows(images, rows, errors, answers, blanks)

    def _answer_all(self, inputs: Mapping[str, Tensor], signature: Signature) -> Outputs:
        """Return the answers for images; fail on a bad image."""

        def read(rows: Rows) -> ReadImages:
            rows = rows[: self._per_run]  # no further, as the first bad image ends the request
            read = self._read(inputs, rows)
            with tf.control_dependencies([fail_on_bad_image(rows, read.errors)]):
                return read._replace(pixels=tf.identity(read.pixels))

        _, answers = self._predict(tf.range(tf.size(inputs["image"])), read, signature)
        return answers

    def _read(self, inputs: Mapping[str, Tensor], rows: Rows) -> ReadImages:
        """Read as many of the rows as one run can take, with the other inputs of those that can be read."""
        read: ReadImages = self._read_images(inputs["image"], rows, self._per_run)
        if not self._others:
            return read
        rows = rows[: tf.size(read.errors)]
        second = None
        if SECOND_IMAGE in self._others:
            readable = tf.boolean_mask(rows, tf.equal(read.errors, ""))  # no more than one run can take
            second = self._read_second(inputs[SECOND_IMAGE], readable, self._per_run)
            read = keep_pairs(read, second)
        readable = tf.boolean_mask(rows, tf.equal(read.errors, ""))
        count = tf.shape(read.pixels)[0]
        others = [
            second.pixels if name == SECOND_IMAGE and second else filled(tf.gather(inputs[name], readable), count)
            for name in self._others
        ]
        return read._replace(others=tuple(others))

    def _answer_pixels(self, inputs: Mapping[str, Tensor], signature: Signature) -> Outputs:
        """Return the answers for images that are arrays of the network's input size."""
        pixels = inputs["pixels"]
        batch = tf.shape(pixels)[0]

        def read(rows: Rows) -> ReadImages:
            rows = rows[: self._per_run]
            # Some kernels reject an empty batch.
            images = tf.cond(
                tf.size(rows) > 0,
                lambda: tf.gather(pixels, rows),
                lambda: tf.zeros([1, *self._preprocessing.size, 3], tf.uint8),
            )
            sizes = tf.tile(tf.constant([self._preprocessing.size], tf.int64), [tf.shape(images)[0], 1])
            others = [
                filled(
                    tf.cast(tf.gather(inputs[SECOND_PIXELS], rows), tf.float32)
                    if name == SECOND_IMAGE
                    else tf.gather(inputs[name], rows),
                    tf.shape(images)[0],
                )
                for name in self._others
            ]
            return ReadImages(tf.cast(images, tf.float32), sizes, tf.fill(tf.shape(rows), ""), tuple(others))

        error, answers = self._predict(tf.range(batch), read, signature)
        return {**answers, "ok": tf.fill([batch], True), "error": error}

    @graph_function(input_signature=[_IMAGES])
    def preprocess(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising."""
        return _pixels(image, self._read_images, self._preprocessing)

    @graph_function(input_signature=[_IMAGES])
    def preprocess_2(self, image: EncodedImages) -> Outputs:
        """Return the network's input of a second image before normalising."""
        return _pixels(image, self._read_second, self._second_preprocessing)

    @graph_function(input_signature=[_IMAGES])
    def preview(self, image: EncodedImages) -> Outputs:
        """Return the network's input before normalising as PNG files."""

        def encode(pixels: PixelBatch, _sizes: Tensor) -> list[Tensor]:
            levels = tf.cast(tf.clip_by_value(tf.round(pixels), 0, 255), tf.uint8)
            return [tf.map_fn(tf.io.encode_png, levels, fn_output_signature=tf.TensorSpec([], tf.string))]

        image = tf.ensure_shape(image, _IMAGES.shape)
        rows = rows_with_bytes(image)
        errors, (files,) = compute_in_runs(
            rows, lambda rows: self._read_images(image, rows, self._per_run), encode, [tf.TensorSpec([], tf.string)]
        )
        return place_rows(image, rows, errors, {"png_bytes": files}, {"png_bytes": b""})

    def _read_normalised(self, photo: bytes) -> np.ndarray | str:
        """Read a photo as signatures do: normalised, float32 [height, width, channels]; or the reason why it can't."""
        read: ReadImages = self._read_images(tf.constant([photo]), tf.constant([0]), tf.constant(1))
        if error := read.errors[0].numpy().decode():
            return f"it is {error}"
        return np.asarray(normalise(read.pixels, self._preprocessing)[0])

    def save(self, path: Path) -> None:
        """Write the SavedModel with all its signatures to `path`, which must not exist."""
        try:
            answers = {name: self.functions[name].get_concrete_function(**specs) for name, specs in self._specs.items()}
            tf.saved_model.save(self, str(path), signatures={**self.functions, **answers})
        except tf.errors.OpError as error:
            raise PublishError(f"cannot write the SavedModel: {error.message}") from error
        _complete_meta_graph(path / "saved_model.pb")

    def _predict(self, rows: Rows, read: Callable[[Rows], ReadImages], signature: Signature) -> tuple[Texts, Outputs]:
        """Return the errors of rows, and the answers for the readable ones by alias; see `compute_in_runs`."""
        specs = [tf.TensorSpec(column.shape, tf.constant(column.blank).dtype) for column in signature.columns.values()]

        def compute(pixels: PixelBatch, sizes: Tensor, *others: Tensor) -> Sequence[Tensor]:
            values = [
                normalise(value, self._second_preprocessing) if name == SECOND_IMAGE else value
                for name, value in zip(self._others, others, strict=True)
            ]
            return signature.compute(self._network(normalise(pixels, self._preprocessing), *values), sizes)

        errors, answers = compute_in_runs(rows, read, compute, specs)
        return errors, dict(zip(signature.columns, answers, strict=True))


def _pixels(image: EncodedImages, read_images: Callable[..., ReadImages], preprocessing: Preprocessing) -> Outputs:
    """Return the pixels of images in the network's size."""
    image = tf.ensure_shape(image, _IMAGES.shape)
    rows = rows_with_bytes(image)
    with tf.control_dependencies([_fail_on_large_output(image, preprocessing)]):
        errors, (pixels,) = compute_in_runs(
            rows,
            lambda rows: read_images(image, rows, tf.size(rows)),
            lambda pixels, _sizes: [pixels],
            [tf.TensorSpec([*preprocessing.size, 3], tf.float32)],
        )
    return place_rows(image, rows, errors, {"pixels": pixels}, {"pixels": np.float32(0)})


def _fail_on_large_output(images: EncodedImages, preprocessing: Preprocessing) -> Tensor:
    """Return an operation that fails with INVALID_ARGUMENT if the pixels of a batch would take too much memory."""
    height, width = preprocessing.size
    max_images = min(max(preprocessing.max_pixels // (height * width), 1), tf.int32.max)
    message = f"too many images to return their pixels: a request can have at most {max_images}"
    return tf.debugging.Assert(tf.size(images) <= max_images, [message])


@functools.lru_cache(maxsize=8)
def _image_reader(preprocessing: Preprocessing, **options: int) -> Callable[..., ReadImages]:
    """Return `read_images` as a function of its first three arguments.

    Traced once: traced in each signature, it would be in the file five times. Later bakes in this process use it too.
    """

    def read_on_cpu(images: EncodedImages, rows: Rows, max_readable: Integer) -> ReadImages:
        with tf.device("CPU"):  # where decoders run; resizing elsewhere would transfer each image separately
            return read_images(images, rows, max_readable, preprocessing, **options)

    specs = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32), tf.TensorSpec([], tf.int32)
    reader: Callable[..., ReadImages] = lazy_function(read_on_cpu).get_concrete_function(*specs)
    return reader


def _complete_meta_graph(path: Path) -> None:
    """Set what tf.saved_model.save can't: the method names of `classify` and `regress`, and lazy functions."""
    saved_model = schema.SavedModel.FromString(path.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    for name in _METHODS & meta_graph.signature_def.keys():
        meta_graph.signature_def[name].method_name = f"tensorflow/serving/{name}"
    propagate_lazy(meta_graph.graph_def)
    merge_constants(meta_graph.graph_def)
    path.write_bytes(saved_model.SerializeToString(deterministic=True))
