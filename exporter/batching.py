"""Batching in the graph: what several requests ask of the network at the same time is answered by one run of it.

The operation is TensorFlow's own BatchFunction, which any tensorflow_model_server runs. It joins and splits on the CPU;
the network is free to be placed elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from savedmodel_bakery.exporter.recipe import Recipe

# The operation counts in 32 bits. Servers bound what they let in, and nobody is to be refused besides.
_BEYOND_ALL_REQUESTS = 2**20


def batch(network: Any, variables: Iterable[Any], recipe: Recipe) -> Any:
    """Join the callers of a network.

    Args:
        network: a concrete function from float32 [batch, …] to float32 [batch, classes], row by row.
        variables: those that it reads.
        recipe: how; its `batch_max` is at least 1.

    Returns:
        A concrete function that answers as `network` does, an empty batch without asking it. The network is run
        under the deadline of who joined a batch last, which cuts only its loops short, for all in the batch.
    """
    given, classes = network.inputs[0], network.outputs[0].shape[-1]
    spec = tf.TensorSpec(given.shape, given.dtype, name="normalised")
    # BatchFunction makes its function ready without optimising it. A call in it that isn't inlined is optimised.
    apart = tf.function(lambda rows: network(rows), autograph=False, experimental_attributes={"_noinline": True})
    body = tf.function(lambda rows: apart(rows), autograph=False).get_concrete_function(spec)
    shared_name = f"batch_{_digest(network, variables, recipe)}"

    def join(rows: Any) -> Any:
        (answer,) = tf.raw_ops.BatchFunction(
            in_tensors=[rows],
            captured_tensors=body.captured_inputs,
            f=body,
            Tout=[tf.float32],
            num_batch_threads=recipe.batching.batch_threads,
            batch_timeout_micros=recipe.batching.batch_timeout_us,
            max_enqueued_batches=_BEYOND_ALL_REQUESTS,
            # This is what one request may bring; it is split into batches of the last allowed size at most.
            max_batch_size=_BEYOND_ALL_REQUESTS,
            allowed_batch_sizes=recipe.batching.batch_sizes,
            enable_large_batch_splitting=True,
            shared_name=shared_name,
        )
        return tf.reshape(answer, [-1, classes])  # of an empty batch it gives a vector

    return tf.function(join, autograph=False).get_concrete_function(spec)


def _digest(network: Any, variables: Iterable[Any], recipe: Recipe) -> str:
    """A name for a network with its weights and recipe, the same whenever these are.

    Where several graphs share resources, callers of one name are joined, and the network of one of them answers all.
    """
    digest = hashlib.sha256(recipe.to_toml().encode())
    digest.update(network.graph.as_graph_def().SerializeToString(deterministic=True))
    for variable in variables:
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()[:16]
