"""Computes the outputs of a request in runs of a few images, so that memory is bounded whatever their number.

read 1 ─► compute 1
     └──► read 2 ─► compute 2
               └──► read 3, after compute 1 ─► …

The last run is computed outside the loop over the others: most requests have one image, and a network in a loop took
2 % longer (EfficientNet-Lite0, TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from savedmodel_bakery.exporter.image.per_image import ReadImages
from savedmodel_bakery.exporter.tensor_types import Integer, PixelBatch, Rows, Tensor, Texts

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
    call = tf.function(compute, autograph=False, experimental_attributes={"_noinline": True})

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
