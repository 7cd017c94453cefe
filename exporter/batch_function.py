"""Batching in the graph: one run of the network answers several concurrent requests.

Uses TensorFlow's BatchFunction, which any tensorflow_model_server can run. It joins and splits batches on the CPU; the
network may be placed on another device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import tensorflow as tf

from savedmodel_bakery.errors import SourceError
from savedmodel_bakery.exporter.graph_functions import graph_function, separate_function
from savedmodel_bakery.exporter.recipe import Recipe
from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, NetworkOutputs, NormalisedBatch, Tensor, Variable

# No limit: servers limit the requests they accept, and no others should be rejected here. The attributes are int32.
_UNLIMITED = 2**20


def batch(network: ConcreteFunction, variables: Iterable[Variable], recipe: Recipe) -> ConcreteFunction:
    """Return a function that joins concurrent calls of a network to batches.

    It returns what `network` returns, and doesn't run it for an empty batch. The network runs under the deadline of the
    request that joined the batch last; that deadline ends loops only, for all requests in the batch.

    Args:
        network: from float32 [batch, …] to one output or a dict of them, float32 [batch, …]; each row depends on its
            own input only.
        variables: the variables it reads.
        recipe: with `batch_max` of at least 1.

    Raises:
        SourceError: an output has any number of boxes, so that those of several requests can't be joined.
    """
    images, specs = network.inputs[0], network.structured_outputs
    for output in network.outputs:
        if None in output.shape[1:]:
            raise SourceError(
                f"{recipe.source.model} returns any number of boxes, {output.shape}: batching needs a fixed one; bake "
                "with --batch-max 0"
            )
    spec = tf.TensorSpec(images.shape, images.dtype, name="normalised")
    # BatchFunction doesn't optimise its function, but does optimise calls in it that aren't inlined.
    not_inlined = separate_function(lambda rows: tf.nest.flatten(network(rows)))
    body = graph_function(lambda rows: not_inlined(rows)).get_concrete_function(spec)
    shared_name = f"batch_{_digest(network, variables, recipe)}"

    def run_batched(rows: NormalisedBatch) -> NetworkOutputs:
        batched = tf.raw_ops.BatchFunction(
            in_tensors=[rows],
            captured_tensors=body.captured_inputs,
            f=body,
            Tout=[tf.float32] * len(network.outputs),
            num_batch_threads=recipe.batching.batch_threads,
            batch_timeout_micros=recipe.batching.batch_timeout_us,
            max_enqueued_batches=_UNLIMITED,
            # The maximum size of one request, which is split into batches of at most the last allowed size.
            max_batch_size=_UNLIMITED,
            allowed_batch_sizes=recipe.batching.batch_sizes,
            enable_large_batch_splitting=True,
            shared_name=shared_name,
        )
        shaped: NetworkOutputs = tf.nest.map_structure(_shaped, specs, tf.nest.pack_sequence_as(specs, batched))
        return shaped

    return graph_function(run_batched).get_concrete_function(spec)


def _shaped(spec: tf.TensorSpec, output: Tensor) -> Tensor:
    """Return an output in its shape; BatchFunction returns a vector for an empty batch."""
    return tf.reshape(output, [-1, *spec.shape[1:]])


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
