"""Computes the outputs of a request in runs of a few images, and places them in its rows.

Memory is bounded, whatever the number of images:

read 1 ─► compute 1
     └──► read 2 ─► compute 2
               └──► read 3, after compute 1 ─► …

The last run is computed outside the loop over the others: most requests have one image, and a network in a loop took
2 % longer (EfficientNet-Lite0, TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import separate_function
from savedmodel_bakery.exporter.image.per_image import EMPTY, ReadImages
from savedmodel_bakery.exporter.tensor_types import (
    EncodedImages,
    Integer,
    Outputs,
    PixelBatch,
    Rows,
    Tensor,
    Text,
    Texts,
)

# Bounds the time and memory of one read if most rows are bad.
_MAX_ROWS_PER_READ = 1024


def compute_in_runs(
    rows: Rows,
    read: Callable[[Rows], ReadImages],
    compute: Callable[[PixelBatch, Tensor], Sequence[Tensor]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[Texts, Sequence[Tensor]]:
    """Compute the outputs of all readable rows.

    Args:
        rows: the rows to read.
        read: reads as many of the rows that it is given as one run can take, from the first. It returns the pixels and
            sizes of the readable ones, which others may follow, and an error for each row that it has read.
        compute: returns outputs [images, …] for the pixels and sizes of a run.
        specs: dtypes of the outputs, and their shapes without the first dimension.

    Returns:
        The error of each row, and the outputs [readable, …] of all readable rows.
    """
    count = tf.size(rows)
    arrays = [
        tf.TensorArray(spec.dtype, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, *spec.shape])
        for spec in (tf.TensorSpec([], tf.string), *specs)
    ]

    # In the loop, the network is a call, because TensorFlow prepares and visits operations that aren't needed too.
    call = separate_function(compute)

    def read_from(start: Integer) -> ReadImages:
        return read(rows[start : start + _MAX_ROWS_PER_READ])

    def write(
        run: Integer,
        images: ReadImages,
        compute: Callable[[PixelBatch, Tensor], Sequence[Tensor]],
        arrays: list[Tensor],
    ) -> list[Tensor]:
        readable = tf.math.count_nonzero(tf.equal(images.errors, ""), dtype=tf.int32)
        values = (images.errors, *(output[:readable] for output in compute(images.pixels, images.sizes)))
        return [array.write(run, value) for array, value in zip(arrays, values, strict=True)]

    def run_and_read_next(
        start: Integer, run: Integer, images: ReadImages, arrays: list[Tensor]
    ) -> tuple[Integer, Integer, ReadImages, list[Tensor]]:
        written = write(run, images, call, arrays)
        following = read_from(start)
        # The start of the next run depends on this read, so two reads never run at the same time.
        return start + tf.size(following.errors), run + 1, following, written

    first = read_from(0)
    any_images = ReadImages(*(tf.TensorShape([None, *tensor.shape[1:]]) for tensor in first))
    _, run, last, arrays = tf.while_loop(
        lambda start, *_: start < count,
        run_and_read_next,
        (tf.size(first.errors), tf.constant(0), first, arrays),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([]), any_images, [tf.TensorShape(None) for _ in arrays]),
        parallel_iterations=1,  # of which each reads images while it computes
    )
    errors, *outputs = (array.concat() for array in write(run, last, compute, arrays))
    return errors, outputs


def rows_with_bytes(images: EncodedImages) -> Rows:
    """Return the numbers of the images that aren't empty."""
    return tf.cast(tf.where(tf.strings.length(images) > 0)[:, 0], tf.int32)


def place_rows(
    images: EncodedImages,
    rows: Rows,
    errors: Texts,
    values: Mapping[str, Tensor],
    blanks: Mapping[str, np.generic | bytes],
) -> Outputs:
    """Return the outputs of a batch: values of the images that are ok in their rows, and blanks in the others.

    Args:
        images: the batch; those without a row are empty.
        rows: that were read.
        errors: of each of these rows.
        values: of the images that are ok, by alias.
        blanks: likewise.
    """
    empty = tf.fill(tf.shape(images), EMPTY)
    error = tf.tensor_scatter_nd_update(empty, rows[:, tf.newaxis], errors)
    ok = tf.equal(error, "")
    outputs: Outputs = {}
    for alias, of_ok in values.items():
        blank = tf.fill(tf.concat([tf.shape(ok), tf.shape(of_ok)[1:]], axis=0), blanks[alias])
        placed = tf.tensor_scatter_nd_update(blank, tf.where(ok), of_ok)
        outputs[alias] = tf.ensure_shape(placed, [None, *of_ok.shape[1:]])
    return {**outputs, "ok": ok, "error": error}


def fail_on_bad_image(rows: Rows, errors: Texts) -> Tensor:
    """Return an operation that fails with INVALID_ARGUMENT if a row has an error, naming the first of them."""
    ok = tf.equal(errors, "")

    def describe() -> Text:  # in the branch only, as an empty batch has no first row
        first = tf.argmin(tf.cast(ok, tf.int32), output_type=tf.int32)
        return tf.strings.join(["image ", tf.strings.as_string(rows[first]), " is ", errors[first]])

    all_ok = tf.reduce_all(ok)
    message = tf.cond(all_ok, lambda: tf.constant(""), describe)
    return tf.debugging.Assert(all_ok, [message])
