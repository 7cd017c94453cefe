"""A SavedModel that a step runs, prepared to be imported into a graph beside others.

Names that are global in a graph or a process are made unique: those of functions, and of variables and tables, their
`shared_name`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.optimisation.flat_graph import node_name, op_definition
from savedmodel_bakery.exporter.optimisation.inlining import called_functions
from savedmodel_bakery.exporter.signatures import INIT_SIGNATURE, read_meta_graph
from savedmodel_bakery.exporter.tensor_types import GraphDef, NodeDef, SignatureDef, Tensor

VARIABLES = frozenset({"VarHandleOp", "VariableV2", "Variable"})
MUTABLE_TABLES = frozenset({"MutableHashTableV2", "MutableHashTableOfTensorsV2", "MutableDenseHashTableV2"})
"""Tables whose content is in the checkpoint, or inserted by the initialiser."""

_ASSETS_OF_TF1 = "saved_model_assets"
_INITIALISERS_OF_TF1 = ("saved_model_main_op", "legacy_init_op")

_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}

# Not a name: the resource belongs to the operation (ResourceHandle::ANONYMOUS_NAME in TensorFlow's resource_handle.h).
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"


class Asset(NamedTuple):
    """A file that the initialiser reads."""

    tensor: str  # name of the tensor that loaders feed with the file's path
    file: Path


class SourceModel:
    """The graph of the SavedModel in the folder `version`; `name` is unique in the pipeline."""

    def __init__(self, version: Path, name: str) -> None:
        self.version, self.name = version, name
        meta_graph = tf.compat.v1.MetaGraphDef.FromString(read_meta_graph(version).SerializeToString())
        self.signatures: Mapping[str, SignatureDef] = meta_graph.signature_def
        # The name of the operation that runs when the SavedModel is loaded; None without one.
        self.initialiser = _initialiser(meta_graph)
        self.assets = _assets(meta_graph, version)
        self._restore = meta_graph.saver_def.restore_op_name
        self._op_list = meta_graph.meta_info_def.stripped_op_list
        digest = hashlib.sha256(meta_graph.graph_def.SerializeToString(deterministic=True)).hexdigest()[:8]
        self._graph_def = meta_graph.graph_def
        _make_unique(self._graph_def, prefix=name, suffix=digest)
        self._functions = {function.signature.name: function for function in self._graph_def.library.function}
        self._nodes: dict[str, NodeDef] = {node.name: node for node in self._graph_def.node}

    def nodes(self, targets: Iterable[str], fed: Collection[str] = ()) -> list[NodeDef]:
        """Return the nodes that tensors or operations depend on, in the order of the graph, but no makers of `fed`."""
        fed_nodes, pending, visited = set(map(node_name, fed)), list(targets), set[str]()
        while pending:
            source = pending.pop()
            is_fed = node_name(source) in fed_nodes if source.startswith("^") else _with_index(source) in fed
            if not is_fed and (name := node_name(source)) not in visited:
                visited.add(name)
                pending.extend(self._nodes[name].input)
        return [node for name, node in self._nodes.items() if name in visited]

    def import_into_default_graph(self, targets: Iterable[str], fed: Mapping[str, Tensor], scope: str) -> list[Any]:
        """Import what the tensors or operations `targets` depend on, and return them.

        Tensors of the default graph replace those that are `fed`, by name. The scope must be unique in the pipeline.
        """
        computed = [target for target in targets if target not in fed]
        graph_def = tf.compat.v1.GraphDef(node=self.nodes(computed, fed), versions=self._graph_def.versions)
        called = called_functions(graph_def.node, self._functions)
        graph_def.library.function.extend(self._functions[name] for name in sorted(called))
        names = {node.name for node in graph_def.node}
        input_map: dict[str, Tensor] = {}
        by_node = {node_name(name): tensor for name, tensor in fed.items()}
        for node in graph_def.node:
            _leave_others(node, names, scope)
            for source in node.input:
                if source.startswith("^") and node_name(source) in by_node:
                    input_map[source] = by_node[node_name(source)]
                elif _with_index(source) in fed:
                    input_map[_with_index(source)] = fed[_with_index(source)]
        try:
            imported = tf.graph_util.import_graph_def(
                graph_def, input_map, computed, name=scope, producer_op_list=self._op_list
            )
        except Exception as error:  # of all types, for example if the graph has operations of another library
            raise PipelineError(f"cannot read the graph of {self.version}: {error}") from error
        by_name = dict(zip(computed, imported, strict=True))
        return [fed[target] if target in fed else by_name[target] for target in targets]

    def check(self, needed: Sequence[NodeDef]) -> None:
        """Check that nodes can run elsewhere: they call no Python, and restore only variables and tables."""
        called = [self._functions[name] for name in sorted(called_functions(needed, self._functions))]
        for node in chain(needed, *(function.node_def for function in called)):
            if node.op in _PYTHON:
                raise PipelineError(
                    f"{self.version} calls Python code in an operation {node.op} ({node.name}), which a SavedModel "
                    "does not contain: replace tf.py_function and tf.numpy_function with operations of TensorFlow"
                )
        restored = {node.name for node in self.nodes([self._restore])} if self._restore else set()
        for node in needed:
            if node.name in restored and node.op not in VARIABLES | MUTABLE_TABLES and is_resource(node):
                raise PipelineError(
                    f"{self.version} keeps state in an operation {node.op} ({node.name}), which cannot be composed: "
                    "only variables and tables can"
                )


def is_resource(node: NodeDef) -> bool:
    """Return whether a node makes something that lives longer than a run, such as a variable or a table."""
    definition = op_definition(node.op)
    return (
        definition is not None
        and definition.is_stateful
        and any(output.is_ref or output.type == tf.resource.as_datatype_enum for output in definition.output_arg)
    )


def _make_unique(graph_def: GraphDef, *, prefix: str, suffix: str) -> None:
    """Make the names of functions and of shared resources unique.

    Functions get a suffix that comes from the graph: if they have the same name after all, they are the same.
    """
    library = graph_def.library
    functions = {function.signature.name for function in library.function}
    # For gradients, which a servable doesn't compute.
    del library.gradient[:]
    del library.registered_gradients[:]
    for node in (*graph_def.node, *(node for function in library.function for node in function.node_def)):
        if node.op in functions:
            node.op = f"{node.op}_{suffix}"
        if (name := node.attr["shared_name"].s if "shared_name" in node.attr else b"") not in (b"", _ANONYMOUS):
            node.attr["shared_name"].s = f"{prefix}/".encode() + name
        for called in _called(node.attr.values()):
            if called.name in functions:
                called.name = f"{called.name}_{suffix}"
    for function in library.function:
        function.signature.name = f"{function.signature.name}_{suffix}"


def _called(attributes: Iterable[Any]) -> Iterator[Any]:
    """Yield the functions that attributes name, and those that their attributes name."""
    for attribute in attributes:
        for function in (*([attribute.func] if attribute.HasField("func") else []), *attribute.list.func):
            yield function
            yield from _called(function.attr.values())


def _leave_others(node: NodeDef, names: Collection[str], scope: str) -> None:
    """Remove what connects a node with others: being placed with a node that isn't imported, and its loop's name."""
    if "_class" in node.attr:
        kept = [name for name in node.attr["_class"].list.s if name.decode().removeprefix("loc:@") in names]
        if kept:
            node.attr["_class"].list.s[:] = kept
        else:
            del node.attr["_class"]
    if "frame_name" in node.attr:  # loops of TensorFlow 1 with the same name are the same loop
        node.attr["frame_name"].s = f"{scope}/".encode() + node.attr["frame_name"].s


def _with_index(tensor: str) -> str:
    return tensor if ":" in tensor else f"{tensor}:0"


def _initialiser(meta_graph: Any) -> str | None:
    if INIT_SIGNATURE in meta_graph.signature_def:
        return str(meta_graph.signature_def[INIT_SIGNATURE].outputs[INIT_SIGNATURE].name)
    for key in _INITIALISERS_OF_TF1:
        if key in meta_graph.collection_def and meta_graph.collection_def[key].node_list.value:
            return str(meta_graph.collection_def[key].node_list.value[0])
    return None


def _assets(meta_graph: Any, version: Path) -> list[Asset]:
    if not meta_graph.asset_file_def and _ASSETS_OF_TF1 in meta_graph.collection_def:
        for packed in meta_graph.collection_def[_ASSETS_OF_TF1].any_list.value:
            meta_graph.asset_file_def.add().ParseFromString(packed.value)
    return [Asset(asset.tensor_info.name, version / "assets" / asset.filename) for asset in meta_graph.asset_file_def]
