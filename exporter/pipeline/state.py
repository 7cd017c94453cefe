"""Brings what a model keeps between calls into the graph of a pipeline: variables, tables, and what initialises them.

Each model is loaded as tensorflow_model_server loads it, so its variables get their values however it restores them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from savedmodel_bakery.errors import PipelineError
from savedmodel_bakery.exporter.pipeline.source_model import (
    MUTABLE_TABLES,
    VARIABLES,
    Asset,
    SourceModel,
    is_resource,
)
from savedmodel_bakery.exporter.tensor_types import NodeDef, Tensor, Variable

tf1 = tf.compat.v1

_TABLE_DTYPES = ("key_dtype", "value_dtype")


class State(NamedTuple):
    """What a model keeps between calls, in the graph of the pipeline."""

    tensors: Mapping[str, Tensor]  # handles of variables and tables, by the model's tensors that they replace
    initialisers: list[Any]  # operations to run when the SavedModel is loaded
    assets: list[Asset]


@contextlib.contextmanager
def loaded_session(version: Path) -> Iterator[tuple[Any, Any]]:
    """Load a SavedModel on the CPU, as tensorflow_model_server does; yield its session and its MetaGraphDef."""
    with tf.Graph().as_default() as graph, tf1.Session(graph=graph, config=cpu_config()) as session:
        try:
            meta_graph = tf1.saved_model.load(session, [tf.saved_model.SERVING], str(version))
        except Exception as error:  # its loader raises all types of errors
            raise PipelineError(f"cannot load the SavedModel in {version}: {error}") from error
        yield session, meta_graph


def cpu_config() -> Any:
    """Return the configuration of a session that runs on the CPU."""
    return tf1.ConfigProto(device_count={"GPU": 0}, allow_soft_placement=True)


def import_state(source: SourceModel, needed: list[NodeDef], session: Any) -> State:
    """Import the state that the nodes `needed` use into the default graph, and its values into the graph's session."""
    source.check(needed)
    initialising = source.nodes([source.initialiser] if source.initialiser else [])
    used = {node.name: node for node in (*needed, *initialising)}
    variables = [node for node in used.values() if node.op in VARIABLES]
    tables = [node for node in needed if node.op in MUTABLE_TABLES]
    tensors: dict[str, Tensor] = {}
    paths = _path_variables(source, initialising)
    with loaded_session(source.version) as (loaded, _):
        for node in variables:
            dtype = tf.as_dtype(node.attr["dtype"].type)
            value = b"" if node.name in paths else _read_variable(loaded, node, source)
            variable = _new_variable(
                f"{source.name}/{node.name}", dtype, value, session, use_resource=node.op == "VarHandleOp"
            )
            tensors[_tensor(node)] = variable.op.outputs[0]
        contents = [_read_table(loaded, node) for node in tables]
    shared = [node for node in initialising if node.op not in VARIABLES and is_resource(node)]
    assets = [asset for asset in source.assets if asset.tensor.partition(":")[0] in used]
    targets = list(dict.fromkeys([*map(_tensor, [*shared, *tables]), *(asset.tensor for asset in assets)]))
    operations = [source.initialiser] if source.initialiser else []
    imported = source.import_into_default_graph([*targets, *operations], tensors, f"models/{source.name}")
    tensors.update(zip(targets, imported, strict=False))
    initialisers = imported[len(targets) :]
    with tf.control_dependencies(initialisers):  # which may fill the tables too
        filled = [
            _fill_table(node, tensors[_tensor(node)], f"{source.name}/{node.name}", content, session)
            for node, content in zip(tables, contents, strict=True)
        ]
    return State(
        tensors,
        [*initialisers, *filled],
        [Asset(tensors[asset.tensor].name, asset.file) for asset in assets],
    )


def _path_variables(source: SourceModel, initialising: Iterable[NodeDef]) -> set[str]:
    """Return the names of variables that the initialiser sets to the path of an asset, which is another one later."""
    assets = {asset.tensor.partition(":")[0] for asset in source.assets}
    return {node.input[0] for node in initialising if node.op == "AssignVariableOp" and node.input[1] in assets}


def _read_variable(loaded: Any, node: NodeDef, source: SourceModel) -> Any:
    with loaded.graph.as_default():
        tensor = loaded.graph.get_tensor_by_name(_tensor(node))
        if node.op == "VarHandleOp":
            tensor = tf.raw_ops.ReadVariableOp(resource=tensor, dtype=node.attr["dtype"].type)
        try:
            return loaded.run(tensor)
        except tf.errors.FailedPreconditionError as error:
            raise PipelineError(
                f"the variable {node.name} of {source.version} has no value after loading; export a Keras model with "
                "model.export(FOLDER), not with tf.saved_model.save"
            ) from error


def _new_variable(name: str, dtype: tf.DType, value: Any, session: Any, *, use_resource: bool = True) -> Variable:
    with session.graph.as_default(), tf.control_dependencies(None):
        initial = tf.zeros(np.shape(value), dtype)
        variable = tf1.Variable(initial, trainable=False, name=name, use_resource=use_resource)
    session.run(variable.initializer, {variable.initializer.inputs[1]: value})
    return variable


def _read_table(loaded: Any, node: NodeDef) -> tuple[Any, Any]:
    """Return the keys and values of a table."""
    with loaded.graph.as_default():
        keys_dtype, values_dtype = (node.attr[attribute].type for attribute in _TABLE_DTYPES)
        exported = tf.raw_ops.LookupTableExportV2(
            table_handle=loaded.graph.get_tensor_by_name(_tensor(node)), Tkeys=keys_dtype, Tvalues=values_dtype
        )
        keys, values = loaded.run([exported.keys, exported.values])
    return keys, values


def _fill_table(node: NodeDef, table: Tensor, name: str, content: tuple[Any, Any], session: Any) -> Any:
    """Return an operation that fills a table with its content, which becomes part of the checkpoint."""
    keys, values = (
        _new_variable(f"{name}/{part}", tf.as_dtype(node.attr[attribute].type), array, session)
        for part, attribute, array in zip(("keys", "values"), _TABLE_DTYPES, content, strict=True)
    )
    return tf.raw_ops.LookupTableImportV2(table_handle=table, keys=keys, values=values)


def _tensor(node: NodeDef) -> str:
    return f"{node.name}:0"
