"""A network as one flat graph: function calls are inlined, and weights are inputs of the graph.

An optimisation step changes `nodes`, `weights` and `outputs`; nodes that are no longer needed are dropped later.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.exporter.graph_functions import graph_function
from savedmodel_bakery.exporter.tensor_types import (
    ConcreteFunction,
    GraphDef,
    NetworkOutputs,
    NodeDef,
    OpDef,
    Tensor,
    Variable,
)

# Operations whose output is their first input.
PASS_THROUGH = frozenset({"Identity", "PreventGradient", "Snapshot", "StopGradient", "PlaceholderWithDefault"})


class Use(NamedTuple):
    """A use of a node's output by another node."""

    node: str  # name of the using node
    position: int | None  # of the input; None for a control dependency
    output: int  # index of the output


class FlatGraph:
    """The nodes of a network, without function calls."""

    def __init__(self, network: ConcreteFunction, graph_def: GraphDef, captures: dict[str, Tensor]) -> None:
        self.nodes: dict[str, NodeDef] = {node.name: node for node in graph_def.node}
        # By the name of the placeholder that stands for the variable's value.
        self.weights: dict[str, Variable] = {}
        self.outputs: list[str] = [output.name for output in network.outputs]
        captured = len(network.captured_inputs)
        self._inputs: list[str] = [each.op.name for each in network.inputs[: len(network.inputs) - captured]]
        self._structured_outputs = network.structured_outputs
        self._captures = captures
        self._library, self._versions = graph_def.library, graph_def.versions

    def origin(self, tensor: str) -> str:
        """Return the tensor that is passed through unchanged to `tensor`."""
        node = self.nodes[node_name(tensor)]
        while node.op in PASS_THROUGH and not any(name.startswith("^") for name in node.input):
            tensor = node.input[0]
            node = self.nodes[node_name(tensor)]
        return tensor.removesuffix(":0")

    def uses(self) -> Mapping[str, list[Use]]:
        """Return the uses of each node's outputs, by its name; the network's outputs count as uses without node."""
        uses: dict[str, list[Use]] = defaultdict(list)
        for node in self.nodes.values():
            for index, name in enumerate(node.input):
                position = None if name.startswith("^") else index
                uses[node_name(name)].append(Use(node.name, position, _output_index(name)))
        for output in self.outputs:
            uses[node_name(output)].append(Use("", None, _output_index(output)))
        return uses

    def prune(self) -> None:
        """Drop nodes that neither an output of the network nor a side effect depends on."""
        needed = self.dependencies([*self._inputs, *self.outputs, *self._side_effects()])
        self.nodes = {name: node for name, node in self.nodes.items() if name in needed}

    def dependencies(self, tensors: Iterable[str]) -> set[str]:
        """Return the names of the nodes that `tensors` depend on, including their own."""
        pending, visited = list(map(node_name, tensors)), set[str]()
        while pending:
            if (name := pending.pop()) not in visited:
                visited.add(name)
                pending.extend(map(node_name, self.nodes[name].input))
        return visited

    def read_once(self) -> set[str]:
        """Return the tensor names that are the only input taken from their origin, which reads of a variable share."""
        readers: dict[object, list[str]] = defaultdict(list)
        for node in self.nodes.values():
            for name in node.input if node.op not in PASS_THROUGH else ():
                if not name.startswith("^"):
                    origin = self.origin(name)
                    weight = self.weights.get(origin)  # reads of one variable have different names
                    readers[origin if weight is None else id(weight)].append(name)
        return {names[0] for names in readers.values() if len(names) == 1}

    def order(self) -> list[str]:
        """Return the names of the nodes that the outputs depend on, each after those that it depends on."""
        order: dict[str, None] = {}
        pending = [(node_name(output), False) for output in self.outputs]
        while pending:
            name, is_ready = pending.pop()
            if is_ready:
                order[name] = None
            elif name not in order:
                pending.append((name, True))
                pending.extend((node_name(source), False) for source in self.nodes[name].input)
        return list(order)

    def shapes(self, tensors: list[str]) -> dict[str, tf.TensorShape]:
        """Infer the shapes of `tensors`."""
        inferred = self.function(tensors, lambda tensor: tensor).outputs
        return {name: tensor.shape for name, tensor in zip(tensors, inferred, strict=True)}

    def add_weight(self, name: str, value: np.ndarray) -> str:
        """Add a variable, and return the name of its node, which starts with `name`."""
        name = self._unused_name(name)
        self.nodes[name] = placeholder(name, tf.as_dtype(value.dtype).as_datatype_enum, value.shape)
        self.weights[name] = tf.Variable(value, trainable=False)
        return name

    def add_constant(self, name: str, value: np.ndarray | np.generic, dtype: tf.DType | None = None) -> str:
        """Add a constant, and return the name of its node, which starts with `name`.

        A `dtype` is a quantised type of the same width as that of the value.
        """
        dtype = dtype or tf.as_dtype(value.dtype)
        name = self.add("Const", name, dtype=dtype)
        tensor = self.nodes[name].attr["value"].tensor
        tensor.dtype = dtype.as_datatype_enum
        tensor.tensor_shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
        tensor.tensor_content = value.tobytes()
        return name

    def add(self, op: str, name: str, *inputs: str, **types: tf.DType) -> str:
        """Add a node whose name starts with `name`, and return its name; `types` are attributes of the operation."""
        name = self._unused_name(name)
        self.put(op, name, *inputs, **types)
        return name

    def put(self, op: str, name: str, *inputs: str, **types: tf.DType) -> None:
        """Add a node, or replace the one of that name."""
        node = tf.compat.v1.NodeDef(name=name, op=op, input=inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype.as_datatype_enum
        self.nodes[name] = node

    def rename(self, name: str) -> str:
        """Rename a node to a new name, and return it; users still refer to the old name, to be replaced by `put`."""
        node = self.nodes.pop(name)
        node.name = self._unused_name(f"{name}/renamed")
        self.nodes[node.name] = node
        return str(node.name)

    def values(self, tensors: list[str]) -> dict[str, np.ndarray]:
        """Compute `tensors`, which must depend only on weights and constants."""
        origins = {tensor: self.origin(tensor) for tensor in tensors}
        values = {name: self.weights[origin].numpy() for name, origin in origins.items() if origin in self.weights}
        if computed := [tensor for tensor in tensors if tensor not in values]:
            compute = graph_function(lambda: self._import({}, computed))
            values.update(zip(computed, (array.numpy() for array in compute()), strict=True))
        return values

    def function(self, tensors: list[str], summarise: Callable[[Tensor], Tensor]) -> ConcreteFunction:
        """Trace a function of the network's inputs that returns a summary of each of `tensors`."""

        def call(*inputs: Tensor) -> list[Tensor]:
            return [summarise(tensor) for tensor in self._import(self._fed(inputs), tensors)]

        return graph_function(call).get_concrete_function(*self._input_specs())

    def trace(self) -> tuple[ConcreteFunction, list[Variable]]:
        """Trace the network as a function, and return it with the variables it reads, which it doesn't keep alive."""

        def call(*inputs: Tensor) -> NetworkOutputs:
            outputs = self._import(self._fed(inputs), self.outputs, self._side_effects())
            for output, spec in zip(outputs, tf.nest.flatten(self._structured_outputs), strict=True):
                output.set_shape(spec.shape)
            packed: NetworkOutputs = tf.nest.pack_sequence_as(self._structured_outputs, outputs)
            return packed

        network = graph_function(call).get_concrete_function(*self._input_specs())
        return network, list(network.graph.variables)

    def _fed(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self._inputs, inputs, strict=True))

    def _input_specs(self) -> list[tf.TensorSpec]:
        attributes = {name: self.nodes[name].attr for name in self._inputs}
        return [tf.TensorSpec(each["shape"].shape, each["dtype"].type, name=name) for name, each in attributes.items()]

    def _unused_name(self, name: str) -> str:
        while name in self.nodes:
            name += "_"
        return name

    def _side_effects(self) -> list[str]:
        return [name for name, node in self.nodes.items() if has_side_effect(node)]

    def _import(self, inputs: dict[str, Tensor], tensors: list[str], side_effects: Iterable[str] = ()) -> list[Tensor]:
        """Import what `tensors` and `side_effects` depend on into the function being traced; return `tensors`."""
        feeds = {**self._captures, **self.weights, **inputs}
        needed = self.dependencies([*tensors, *side_effects])
        graph_def = tf.compat.v1.GraphDef(
            node=[node for name, node in self.nodes.items() if name in needed - feeds.keys()],
            library=self._library,
            versions=self._versions,
        )
        # Always in the same order, so that a repeated bake numbers its variables equally.
        fed = {name: tf.convert_to_tensor(tensor) for name, tensor in feeds.items() if name in needed}
        used = {node_name(name) for node in graph_def.node for name in node.input} & fed.keys()
        computed = [tensor for tensor in tensors if node_name(tensor) not in fed]
        imported = tf.graph_util.import_graph_def(
            graph_def,
            {f"{name}:0": fed[name] for name in fed if name in used},
            [tensor if ":" in tensor else f"{tensor}:0" for tensor in computed],
            name="",
        )
        by_name = dict(zip(computed, imported, strict=True))
        return [by_name[tensor] if tensor in by_name else fed[node_name(tensor)] for tensor in tensors]


def add_until_stable(
    names: Iterable[str], nodes: Iterable[NodeDef], belongs: Callable[[NodeDef, Set[str]], bool]
) -> Set[str]:
    """Return `names` and those of the nodes that belong to them, or to others that do."""
    added, previous_size = set(names), -1
    while previous_size < len(added):
        previous_size = len(added)
        added |= {node.name for node in nodes if belongs(node, added)}
    return added


def has_channels_last(node: NodeDef) -> bool:
    """Return whether channels are the last axis of the node's input and output."""
    return "data_format" not in node.attr or node.attr["data_format"].s == b"NHWC"


def node_name(tensor: str) -> str:
    """Return the name of the node that a tensor or a control dependency refers to."""
    return tensor.removeprefix("^").partition(":")[0]


def _output_index(tensor: str) -> int:
    return int(tensor.partition(":")[2] or 0)


def placeholder(name: str, dtype: int, shape: tf.TensorShape | tuple[int, ...]) -> NodeDef:
    """Return a node that stands for an input of the graph."""
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return node


def has_side_effect(node: NodeDef) -> bool:
    """Return whether a node does more than compute its outputs, or may do so because its operation is unknown."""
    definition = op_definition(node.op)
    return node.op != "Placeholder" and (definition is None or definition.is_stateful)


@functools.cache
def op_definition(op: str) -> OpDef | None:
    """Return the definition of an operation; None if no operation of that name is registered, as for a function."""
    graph_def = tf.compat.v1.GraphDef(node=[tf.compat.v1.NodeDef(name="node", op=op)])
    meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=tf.Graph())
    return next(iter(meta_graph.meta_info_def.stripped_op_list.op), None)
