"""How functions become parts of a graph: traced without AutoGraph, with a fallback, or lazily.

At the first call of a signature TensorFlow inlines all functions, branches and loops and optimises the result; for the
branches of the image graph this takes a second or two. It leaves functions of datasets alone, so lazy functions have
their mark (FunctionDef's `_tf_data_function`). Branches and loops that must not be lowered
(`_lower_using_switch_merge`) remain functions too, of which only those that an image needs are prepared.
tensorflow_model_server knows both attributes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from savedmodel_bakery.exporter.tensor_types import FunctionDef, GraphDef, Tensor

_DATASET_FUNCTION, _LOWER = "_tf_data_function", "_lower_using_switch_merge"

graph_function = functools.partial(tf.function, autograph=False)
"""tf.function for the exporter's own code, which contains no Python control flow over tensors: AutoGraph would double
the time of a bake, and wrap errors of the user's code in its own messages."""

lazy_function = functools.partial(graph_function, experimental_attributes={_DATASET_FUNCTION: True})
"""Makes a graph function that is prepared lazily."""

separate_function = functools.partial(graph_function, experimental_attributes={"_noinline": True})
"""Makes a graph function that stays a call in the graphs that use it."""


def with_fallback(function: Callable[[Tensor], Tensor], argument: Tensor, *, fallback: Tensor) -> Tensor:
    """Return `function(argument)`, or `fallback`, of the same dtype and rank, if an operation in it fails.

    A failing operation ends a whole run, but inside a dataset only its element. Keep `function` small: each time the
    dataset is created, TensorFlow visits every operation in it and in the functions it calls.
    """
    result = tf.data.Dataset.from_tensors(argument).map(function).ignore_errors()
    return result.concatenate(tf.data.Dataset.from_tensors(fallback)).take(1).get_single_element()


def propagate_lazy(graph_def: GraphDef) -> None:
    """Mark everything that lazy functions and datasets call, including their branches and loops."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    pending = [name for name, function in functions.items() if _DATASET_FUNCTION in function.attr]
    lazy = set[str]()
    while pending:
        if (name := pending.pop()) not in lazy:
            lazy.add(name)
            pending.extend(callee for callee in _callees(functions[name]) if callee in functions)
    for name in lazy:
        functions[name].attr[_DATASET_FUNCTION].b = True
        for node in functions[name].node_def:
            if _LOWER in node.attr:
                node.attr[_LOWER].b = False


def merge_constants(graph_def: GraphDef) -> None:
    """Merge equal constants of each function, which are a sixth of all operations: every literal is one of its own.

    Preparing a signature takes time for each operation.
    """
    for function in graph_def.library.function:
        names: dict[str, str] = {}
        first: dict[bytes, str] = {}
        for node in function.node_def:
            if node.op == "Const" and not node.input:
                value = type(node)(attr=node.attr, device=node.device).SerializeToString(deterministic=True)
                names[node.name] = first.setdefault(value, node.name)
        kept = [node for node in function.node_def if names.get(node.name, node.name) == node.name]
        for node in kept:
            node.input[:] = [_renamed(source, names) for source in node.input]
        for output, source in function.ret.items():
            function.ret[output] = _renamed(source, names)
        nodes = [type(node).FromString(node.SerializeToString()) for node in kept]
        del function.node_def[:]
        function.node_def.extend(nodes)


def _renamed(tensor: str, names: Mapping[str, str]) -> str:
    """Return the tensor `name:output:index`, or the control dependency `^name`, of the node's new name."""
    name = tensor.removeprefix("^").partition(":")[0]
    return tensor.replace(name, names.get(name, name), 1)


def _callees(function: FunctionDef) -> Iterator[str]:
    for node in function.node_def:
        for value in node.attr.values():
            if value.HasField("func"):
                yield value.func.name
            for callee in value.list.func:
                yield callee.name
