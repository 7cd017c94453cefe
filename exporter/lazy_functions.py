"""Functions of a saved graph that are made ready when they are first run, not before.

TensorFlow makes a graph ready once for each signature, when it is first asked: it inlines what is called, branches and
loops too, and takes the whole through a dozen passes of optimisation, in a second or two for all that an image may
turn out to be. What a dataset calls it leaves alone (FunctionDef's `_tf_data_function`), and branches and loops that
must not be lowered (`_lower_using_switch_merge`) are functions still, of which only those are made ready that a
picture needs. Both are attributes that tensorflow_model_server knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OF_DATASET, _LOWERED = "_tf_data_function", "_lower_using_switch_merge"

LATE = {_OF_DATASET: True}
"""`experimental_attributes` of a tf.function that is to be so."""


def keep_late(graph_def: Any) -> None:
    """Mark all that such functions and datasets call, and the branches and loops in it, in a GraphDef."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    called = [name for name, function in functions.items() if _OF_DATASET in function.attr]
    marked = set[str]()
    while called:
        if (name := called.pop()) not in marked:
            marked.add(name)
            called.extend(callee for callee in _callees(functions[name]) if callee in functions)
    for name in marked:
        functions[name].attr[_OF_DATASET].b = True
        for node in functions[name].node_def:
            if _LOWERED in node.attr:
                node.attr[_LOWERED].b = False


def _callees(function: Any) -> Iterator[str]:
    for node in function.node_def:
        for value in node.attr.values():
            if value.HasField("func"):
                yield value.func.name
            for called in value.list.func:
                yield called.name
