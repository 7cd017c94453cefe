"""Divides requests into runs of the network, and joins concurrent ones.

A request is computed in runs of a few images, so its memory is bounded, whatever the number of images:

read 1 ─► compute 1
     └──► read 2 ─► compute 2
               └──► read 3, after compute 1 ─► …

The last run is computed outside the loop over the others: most requests have one image, and a network in a loop took
2 % longer (EfficientNet-Lite0, TensorFlow 2.21).

With `batch_max`, a run answers several concurrent requests: TensorFlow's BatchFunction, which any
tensorflow_model_server can run, joins and splits batches on the CPU; the network may be placed on another device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.graph_functions import graph_function, separate_function
from savedmodel_bakery.exporter.image.per_image import EMPTY, ReadImages
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tensor_types import (
    ConcreteFunction,
    EncodedImages,
    Integer,
    NetworkOutputs,
    Outputs,
    Rows,
    Tensor,
    Text,
    Texts,
    Variable,
)

# Bounds the time and memory of one read if most rows are bad.
_MAX_ROWS_PER_READ = 1024

# No limit: servers limit the requests they accept, and no others should be rejected here. The attributes are int32.
_UNLIMITED = 2**20


def compute_in_runs(
    rows: Rows,
    read: Callable[[Rows], ReadImages],
    compute: Callable[..., Sequence[Tensor]],
    specs: Sequence[tf.TensorSpec],
) -> tuple[Texts, Sequence[Tensor]]:
    """Return the error of each row, and the outputs [readable, …] of all readable rows.

    Args:
        rows: the rows to read.
        read: reads as many of the rows that it is given as one run can take, from the first. It returns the pixels and
            sizes of the readable ones, which others may follow, and an error for each row that it has read.
        compute: returns outputs [images, …] for the pixels, the sizes and what else the network takes in a run.
        specs: dtypes of the outputs, and their shapes without the first dimension.
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
        compute: Callable[..., Sequence[Tensor]],
        arrays: list[Tensor],
    ) -> list[Tensor]:
        readable = tf.math.count_nonzero(tf.equal(images.errors, ""), dtype=tf.int32)
        outputs = compute(images.pixels, images.sizes, *images.others)
        values = (images.errors, *(output[:readable] for output in outputs))
        return [array.write(run, value) for array, value in zip(arrays, values, strict=True)]

    def run_and_read_next(
        start: Integer, run: Integer, images: ReadImages, arrays: list[Tensor]
    ) -> tuple[Integer, Integer, ReadImages, list[Tensor]]:
        written = write(run, images, call, arrays)
        following = read_from(start)
        # The start of the next run depends on this read, so two reads never run at the same time.
        return start + tf.size(following.errors), run + 1, following, written

    first = read_from(0)
    any_images = tf.nest.map_structure(lambda tensor: tf.TensorShape([None, *tensor.shape[1:]]), first)
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
    """Return the outputs of a batch by alias: values of the images that are ok in their rows, blanks in the others.

    `rows` are those that were read, with an error each; images without a row are empty.
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


def batch_calls(network: ConcreteFunction, variables: Iterable[Variable], recipe: Recipe) -> ConcreteFunction:
    """Return a function that joins concurrent calls of a network to batches of at most the recipe's `batch_max`.

    It returns what `network` returns, and doesn't run it for an empty batch. Each row of an output must depend on its
    own input only. The network runs under the deadline of the request that joined the batch last; that deadline ends
    loops only, for all requests in the batch. `variables` are those that the network reads.
    """
    outputs_by_role = network.structured_outputs
    for output in network.outputs:
        if None in output.shape[1:]:
            raise SourceError(
                f"{recipe.source.model} returns any number of boxes, {output.shape}: batching needs a fixed one; bake "
                "with --batch-max 0"
            )
    inputs = network.inputs[: len(network.inputs) - len(network.captured_inputs)]
    specs = [tf.TensorSpec(each.shape, each.dtype, name=each.op.name) for each in inputs]
    # BatchFunction doesn't optimise its function, but does optimise calls in it that aren't inlined.
    not_inlined = separate_function(lambda *rows: tf.nest.flatten(network(*rows)))
    body = graph_function(lambda *rows: not_inlined(*rows)).get_concrete_function(*specs)
    shared_name = f"batch_{_digest(network, variables, recipe)}"

    def run_batched(*rows: Tensor) -> NetworkOutputs:
        batched = tf.raw_ops.BatchFunction(
            in_tensors=list(rows),
            captured_tensors=body.captured_inputs,
            f=body,
            Tout=[output.dtype for output in network.outputs],
            num_batch_threads=recipe.batching.batch_threads,
            batch_timeout_micros=recipe.batching.batch_timeout_us,
            max_enqueued_batches=_UNLIMITED,
            # The maximum size of one request, which is split into batches of at most the last allowed size.
            max_batch_size=_UNLIMITED,
            allowed_batch_sizes=recipe.batching.batch_sizes,
            enable_large_batch_splitting=True,
            shared_name=shared_name,
        )
        # In the shapes of the specs, because BatchFunction returns a vector for an empty batch.
        outputs: NetworkOutputs = tf.nest.map_structure(
            lambda spec, output: tf.reshape(output, [-1, *spec.shape[1:]]),
            outputs_by_role,
            tf.nest.pack_sequence_as(outputs_by_role, batched),
        )
        return outputs

    return graph_function(run_batched).get_concrete_function(*specs)


def _digest(network: ConcreteFunction, variables: Iterable[Variable], recipe: Recipe) -> str:
    """Return a digest of a network with its weights and recipe.

    Graphs that share resources share the queue of a name, and the network of one of them answers the calls of all. So
    the name must differ unless their networks are equal.
    """
    digest = hashlib.sha256(recipe.to_toml().encode())
    digest.update(network.graph.as_graph_def().SerializeToString(deterministic=True))
    for variable in variables:
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()[:16]
