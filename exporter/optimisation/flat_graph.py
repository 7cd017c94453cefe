"""A network as one flat graph: calls are inlined, and weights are fed from outside.

A step of optimisation changes `nodes`, `weights` and `output`; what nothing leads to any more is dropped in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.grappler import tf_optimizer

# Their output is their first input.
PASSING_ON = frozenset({"Identity", "PreventGradient", "Snapshot", "StopGradient", "PlaceholderWithDefault"})

# Control flow of TensorFlow 1 is made of single operations, and nothing may leave the branch or the loop it is in.
_CONTROL_FLOW = frozenset({"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"})


class Use(NamedTuple):
    """A node that takes another's output, at which place, and which output; a control dependency has no place."""

    node: str
    place: int | None
    output: int


class FlatGraph:
    """The nodes of a network, without calls of functions.

    Attributes:
        nodes: by name.
        weights: the variables, by the name of the placeholder that stands for what is read of one.
        output: name of the tensor that the network gives.
    """

    def __init__(self, traced: Any, graph_def: Any, weights: dict[str, Any], captures: dict[str, Any]) -> None:
        self.nodes = {node.name: node for node in graph_def.node}
        self.weights = weights
        self.output: str = traced.outputs[0].name
        self._input: str = traced.inputs[0].op.name
        self._shape = traced.outputs[0].shape
        self._captures = captures
        self._library, self._versions = graph_def.library, graph_def.versions

    def origin(self, tensor: str) -> str:
        """The tensor that `tensor` is, passed on by operations that change nothing."""
        node = self.nodes[node_of(tensor)]
        while node.op in PASSING_ON and not any(name.startswith("^") for name in node.input):
            tensor = node.input[0]
            node = self.nodes[node_of(tensor)]
        return tensor.removesuffix(":0")

    def uses(self) -> Mapping[str, list[Use]]:
        """Who takes what each node gives, by the node's name; the network's own output counts, as used by nobody."""
        found: dict[str, list[Use]] = defaultdict(list)
        for node in self.nodes.values():
            for place, name in enumerate(node.input):
                found[node_of(name)].append(Use(node.name, None if name.startswith("^") else place, _index(name)))
        found[node_of(self.output)].append(Use("", None, _index(self.output)))
        return found

    def prune(self) -> None:
        """Drop nodes that neither the network's output nor any effect depends on."""
        kept = self.leading_to([self._input, self.output, *self._effects()])
        self.nodes = {name: node for name, node in self.nodes.items() if name in kept}

    def leading_to(self, tensors: Iterable[str]) -> set[str]:
        """Names of the nodes that `tensors` depend on, their own among them."""
        wanted, found = list(map(node_of, tensors)), set[str]()
        while wanted:
            if (name := wanted.pop()) not in found:
                found.add(name)
                wanted.extend(map(node_of, self.nodes[name].input))
        return found

    def read_once(self) -> set[str]:
        """Names by which one operation alone takes a tensor; a weight is one tensor, however often it is read."""
        readers: dict[object, list[str]] = defaultdict(list)
        for node in self.nodes.values():
            for name in node.input if node.op not in PASSING_ON else ():
                if not name.startswith("^"):
                    origin = self.origin(name)
                    weight = self.weights.get(origin)  # reads of one variable have different names
                    readers[origin if weight is None else id(weight)].append(name)
        return {names[0] for names in readers.values() if len(names) == 1}

    def shapes(self, tensors: list[str]) -> dict[str, tf.TensorShape]:
        """What is known of the shapes of `tensors`."""
        found: dict[str, tf.TensorShape] = {}

        def look(normalised: Any) -> None:
            made = self._import({self._input: normalised}, tensors)
            found.update((name, tensor.shape) for name, tensor in zip(tensors, made, strict=True))

        tf.function(look, autograph=False).get_concrete_function(self._spec())
        return found

    def add_weight(self, name: str, value: np.ndarray) -> str:
        """A new node that gives `value`, with a name that begins so."""
        name = self._free(name)
        self.nodes[name] = _placeholder(name, tf.as_dtype(value.dtype).as_datatype_enum, value.shape)
        self.weights[name] = tf.Variable(value, trainable=False)
        return name

    def add_cast(self, tensor: str, of: tf.DType, to: tf.DType) -> str:
        """A new node that gives a tensor of type `of` as one of type `to`."""
        return self.add("Cast", f"{node_of(tensor)}/{to.name}", tensor, SrcT=of, DstT=to)

    def add_constant(self, name: str, value: np.ndarray) -> str:
        """A new node that gives `value`, which is small, with a name that begins so."""
        name = self.add("Const", name, dtype=tf.as_dtype(value.dtype))
        self.nodes[name].attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
        return name

    def add(self, op: str, name: str, *inputs: str, **types: tf.DType) -> str:
        """A new node with a name that begins so; `types` are attributes of the operation."""
        name = self._free(name)
        self.put(op, name, *inputs, **types)
        return name

    def put(self, op: str, name: str, *inputs: str, **types: tf.DType) -> None:
        """A node of that name, in the place of one that may be there."""
        node = tf.compat.v1.NodeDef(name=name, op=op, input=inputs)
        for attribute, dtype in types.items():
            node.attr[attribute].type = dtype.as_datatype_enum
        self.nodes[name] = node

    def rename(self, name: str) -> str:
        """Give a node another name; who takes what it gives still names the old one, where another is to be put."""
        node = self.nodes.pop(name)
        node.name = self._free(f"{name}/renamed")
        self.nodes[node.name] = node
        return str(node.name)

    def values(self, tensors: list[str]) -> dict[str, np.ndarray]:
        """What the weights alone make of `tensors`, which depend on nothing else."""
        origins = {tensor: self.origin(tensor) for tensor in tensors}
        found = {name: self.weights[origin].numpy() for name, origin in origins.items() if origin in self.weights}
        if computed := [tensor for tensor in tensors if tensor not in found]:
            compute = tf.function(lambda: self._import({}, computed), autograph=False)
            found.update(zip(computed, (array.numpy() for array in compute()), strict=True))
        return found

    def trace(self) -> tuple[Any, list[Any]]:
        """The concrete function from the network's input to its output, and the variables that it reads.

        The function alone doesn't keep them.
        """

        def call(normalised: Any) -> Any:
            (answer,) = self._import({self._input: normalised}, [self.output], self._effects())
            answer.set_shape(self._shape)
            return answer

        traced = tf.function(call, autograph=False).get_concrete_function(self._spec())
        return traced, list(traced.graph.variables)

    def _spec(self) -> tf.TensorSpec:
        placeholder = self.nodes[self._input].attr
        return tf.TensorSpec(placeholder["shape"].shape, placeholder["dtype"].type, name=self._input)

    def _free(self, name: str) -> str:
        while name in self.nodes:
            name += "_"
        return name

    def _effects(self) -> list[str]:
        return [name for name, node in self.nodes.items() if _has_effect(node)]

    def _import(self, fed: dict[str, Any], tensors: list[str], effects: Iterable[str] = ()) -> Any:
        """Make what `tensors` and `effects` depend on part of the function that is being traced."""
        feeds = {**self._captures, **self.weights, **fed}
        found = self.leading_to([*tensors, *effects])
        graph_def = tf.compat.v1.GraphDef(
            node=[node for name, node in self.nodes.items() if name in found - feeds.keys()],
            library=self._library,
            versions=self._versions,
        )
        # In the same order every time, or the same bake would number its variables otherwise.
        there = {name: tf.convert_to_tensor(tensor) for name, tensor in feeds.items() if name in found}
        taken = {node_of(name) for node in graph_def.node for name in node.input} & there.keys()
        made_here = [tensor for tensor in tensors if node_of(tensor) not in there]
        made = tf.graph_util.import_graph_def(
            graph_def,
            {f"{name}:0": there[name] for name in there if name in taken},
            [tensor if ":" in tensor else f"{tensor}:0" for tensor in made_here],
            name="",
        )
        given = dict(zip(made_here, made, strict=True))
        return [given[tensor] if tensor in given else there[node_of(tensor)] for tensor in tensors]


def flatten(traced: Any) -> FlatGraph | None:
    """Inline a concrete function of one input and one output; None where that can't be done without risk.

    Such are a network with control flow of TensorFlow 1, and one that does more with its variables than read them.
    """
    graph_def = _inlined(traced)
    variables = {id(variable.handle): variable for variable in traced.graph.variables}
    captures = {internal.op.name: external for external, internal in traced.graph.captures}
    graph = FlatGraph(traced, graph_def, {}, captures)
    handles = {name: variables[id(handle)] for name, handle in captures.items() if id(handle) in variables}
    for name, node in list(graph.nodes.items()):
        if node.op in _CONTROL_FLOW:
            return None
        data = [source for source in node.input if not source.startswith("^")]
        read = [handle for source in data if (handle := _passed_on(graph, source)) in handles]
        if node.op == "ReadVariableOp" and read:
            graph.nodes[name] = _placeholder(name, node.attr["dtype"].type, handles[read[0]].shape)
            graph.weights[name] = handles[read[0]]
        elif node.op not in PASSING_ON and read:
            return None
        node.attr.pop("_class", None)  # to be where another node is, which may go
    _drop_needless_control(graph)
    return graph


def _passed_on(graph: FlatGraph, tensor: str) -> str:
    """The node whose output `tensor` is, whatever it has to wait for on the way."""
    while (node := graph.nodes[node_of(tensor)]).op in PASSING_ON:
        tensor = node.input[0]
    return node_of(tensor)


def _drop_needless_control(graph: FlatGraph) -> None:
    """Let no node wait for what has no effect; each call that was inlined has left such dependencies."""
    late, known = {name for name, node in graph.nodes.items() if _has_effect(node)}, -1
    while known < len(late):
        known = len(late)
        late |= {name for name, node in graph.nodes.items() if any(node_of(source) in late for source in node.input)}
    for node in graph.nodes.values():
        kept = [source for source in node.input if not source.startswith("^") or node_of(source) in late]
        del node.input[:]
        node.input.extend(kept)


def has_channels_last(node: Any) -> bool:
    """Whether channels are the last axis of what it takes and gives."""
    return "data_format" not in node.attr or node.attr["data_format"].s == b"NHWC"


def node_of(tensor: str) -> str:
    """The name of the node that gives a tensor, or on which a control dependency is."""
    return tensor.removeprefix("^").partition(":")[0]


def _index(tensor: str) -> int:
    return int(tensor.partition(":")[2] or 0)


def _inlined(traced: Any) -> Any:
    """The graph of a concrete function with the functions that it calls inlined; `If` and `While` stay."""
    graph_def = traced.graph.as_graph_def()
    for part in (*graph_def.library.function, *_all_nodes(graph_def)):
        if "_lower_using_switch_merge" in part.attr:
            part.attr["_lower_using_switch_merge"].b = False
        # Keras has XLA compile convolutions in groups; tensorflow_model_server refuses that, and needs it no more.
        if part.attr.pop("_XlaMustCompile", None):
            part.attr.pop("_noinline", None)
    meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=graph_def, graph=tf.Graph())
    kept = meta_graph.collection_def["train_op"].node_list.value
    kept.extend(tensor.name for tensor in [*traced.inputs, *traced.outputs])
    config = tf.compat.v1.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1  # small graphs too
    config.graph_options.rewrite_options.optimizers.append("function")
    inlined = tf_optimizer.OptimizeGraph(config, meta_graph)
    # Functions that are called still keep their names, so they must stay what they were under them.
    known = {function.signature.name: function for function in traced.graph.as_graph_def().library.function}
    for function in inlined.library.function:
        function.CopyFrom(known.get(function.signature.name, function))
    return inlined


def _all_nodes(graph_def: Any) -> Iterator[Any]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def _placeholder(name: str, dtype: int, shape: Any) -> Any:
    node = tf.compat.v1.NodeDef(name=name, op="Placeholder")
    node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    return node


def _has_effect(node: Any) -> bool:
    definition = op_def_registry.get(node.op)
    return node.op != "Placeholder" and (definition is None or definition.is_stateful)
