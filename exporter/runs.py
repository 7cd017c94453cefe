"""Computes the outputs of a request in runs of a few images, so that memory is bounded whatever their number.

read 1 ─► compute 1
     └──► read 2 ─► compute 2
               └──► read 3, after compute 1 ─► …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from savedmodel_bakery.exporter.image.per_image import ReadImages
from savedmodel_bakery.exporter.tensor_types import Integer, PixelBatch, Rows, Tensor, Texts

# Bounds the time and memory of one read if most rows are bad.
_MAX_ROWS_PER_READ = 1024

# One run computes while the images of the next are read.
_CONCURRENT_RUNS = 2


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

    def run_next(start: Integer, run: Integer, arrays: list[Tensor]) -> tuple[Integer, Integer, list[Tensor]]:
        pixels, sizes, errors = read(rows[start : start + _MAX_ROWS_PER_READ])
        readable = tf.math.count_nonzero(tf.equal(errors, ""), dtype=tf.int32)
        outputs = (output[:readable] for output in compute(pixels, sizes))
        written = [array.write(run, value) for array, value in zip(arrays, (errors, *outputs), strict=True)]
        # The start of the next run depends on this read, so two reads never run at the same time.
        return start + tf.size(errors), run + 1, written

    _, _, arrays = tf.while_loop(
        lambda start, *_: start < count,
        run_next,
        (tf.constant(0), tf.constant(0), arrays),
        parallel_iterations=_CONCURRENT_RUNS,
    )
    errors, *outputs = (array.concat() for array in arrays)
    return errors, outputs
