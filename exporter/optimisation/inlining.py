"""Makes a flat graph of a network: inlines its function calls, and makes its weights inputs.

The only module of `exporter` that uses TensorFlow's private Python API: the inliner is a pass of Grappler, TensorFlow's
graph optimiser, and the public API runs Grappler only inside a session, which returns graphs that can't be saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

import tensorflow as tf
from tensorflow.python.grappler import tf_optimizer

from savedmodel_bakery.exporter.optimisation.flat_graph import (
    PASS_THROUGH,
    FlatGraph,
    add_until_stable,
    has_side_effect,
    node_name,
    placeholder,
)
from savedmodel_bakery.exporter.tensor_types import ConcreteFunction, FunctionDef, GraphDef, NodeDef

# Control flow of TensorFlow 1 consists of single operations, and a node must not be moved out of its branch or loop.
_CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})


def flatten(network: ConcreteFunction) -> FlatGraph | None:
    """Inline a network; None if that isn't safe.

    It isn't for a network with control flow of TensorFlow 1, or one that does more with its variables than read them.
    """
    graph_def = _inline(network)
    variables = {id(variable.handle): variable for variable in network.graph.variables}
    captures = {internal.op.name: external for external, internal in network.graph.captures}
    graph = FlatGraph(network, graph_def, captures)
    handles = {name: variables[id(handle)] for name, handle in captures.items() if id(handle) in variables}
    for name, node in list(graph.nodes.items()):
        if node.op in _CONTROL_FLOW:
            return None
        sources = [source for source in node.input if not source.startswith("^")]
        read = [handle for source in sources if (handle := _passed_through(graph, source)) in handles]
        if node.op == "ReadVariableOp" and read:
            graph.nodes[name] = placeholder(name, node.attr["dtype"].type, handles[read[0]].shape)
            graph.weights[name] = handles[read[0]]
        elif node.op not in PASS_THROUGH and read:
            return None
        node.attr.pop("_class", None)  # places it with another node, which may be dropped
        # Names a function for the gradient, as of swish; it captures tensors of the graph before, so it can't be saved.
        node.attr.pop("_gradient_op_type", None)
    _drop_needless_control_inputs(graph)
    return graph


def _passed_through(graph: FlatGraph, tensor: str) -> str:
    """Return the node whose output is passed through to `tensor`, ignoring control dependencies."""
    while (node := graph.nodes[node_name(tensor)]).op in PASS_THROUGH:
        tensor = node.input[0]
    return node_name(tensor)


def _drop_needless_control_inputs(graph: FlatGraph) -> None:
    """Drop control dependencies on nodes without side effects; every inlined call leaves some."""
    effective = add_until_stable(
        [name for name, node in graph.nodes.items() if has_side_effect(node)],
        graph.nodes.values(),
        lambda node, effective: any(node_name(source) in effective for source in node.input),
    )
    for node in graph.nodes.values():
        kept = [source for source in node.input if not source.startswith("^") or node_name(source) in effective]
        del node.input[:]
        node.input.extend(kept)


def _inline(network: ConcreteFunction) -> GraphDef:
    """Return the graph of a network with its function calls inlined, except `If` and `While`."""
    graph_def = network.graph.as_graph_def()
    library = graph_def.library.function
    nodes = chain(graph_def.node, *(function.node_def for function in library))
    for definition in chain(library, nodes):
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
