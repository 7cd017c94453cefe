"""Inlines the function calls of a network.

The only module of `exporter` that uses TensorFlow's private Python API: the inliner is a pass of Grappler, TensorFlow's
graph optimiser, and the public API runs Grappler only inside a session, which returns graphs that can't be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf
from tensorflow.python.grappler import tf_optimizer

from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, FunctionDef, GraphDef, NodeDef


def inline(network: ConcreteFunction) -> GraphDef:
    """Return the graph of a network with its function calls inlined, except `If` and `While`."""
    graph_def = network.graph.as_graph_def()
    for definition in (*graph_def.library.function, *_all_nodes(graph_def)):
        if "_lower_using_switch_merge" in definition.attr:
            definition.attr["_lower_using_switch_merge"].b = False
        # Keras has grouped convolutions compiled by XLA, which tensorflow_model_server refuses. They run without it.
        if definition.attr.pop("_XlaMustCompile", None):
            definition.attr.pop("_noinline", None)
    meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=tf.Graph())
    kept = meta_graph.collection_def["train_op"].node_list.value
    kept.extend(tensor.name for tensor in [*network.inputs, *network.outputs])
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1  # small graphs too
    config.graph_options.rewrite_options.optimizers.append("function")
    inlined = tf_optimizer.OptimizeGraph(config, meta_graph)
    # Functions that are still called keep their names, so their content must not change.
    originals = {function.signature.name: function for function in network.graph.as_graph_def().library.function}
    functions = {function.signature.name: function for function in inlined.library.function} | originals
    called = called_functions(inlined.node, functions)
    del inlined.library.function[:]
    inlined.library.function.extend(functions[name] for name in functions if name in called)
    return inlined


def called_functions(nodes: Iterable[NodeDef], functions: Mapping[str, FunctionDef]) -> set[str]:
    """Return the names of the functions that nodes call, and of those that these call."""
    pending, called = list(nodes), set[str]()
    while pending:
        node = pending.pop()
        values = [value for attr in node.attr.values() for value in (attr.func, *attr.list.func)]
        for name in ({node.op, *(value.name for value in values)} & functions.keys()) - called:
            called.add(name)
            pending.extend(functions[name].node_def)
    return called


def _all_nodes(graph_def: GraphDef) -> Iterator[NodeDef]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
