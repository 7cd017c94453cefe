"""Builds one graph of the steps of a pipeline, and writes it as a SavedModel.

pipeline's inputs ─► step 1 ─► tensor ─► step 2 ─► …     the steps' subgraphs, connected by their tensors only
                       ▲                   ▲
variables, tables ─────┴───────────────────┘             once per model
initialisers                                             run together when the SavedModel is loaded

Works on GraphDefs. If functions called each other, each would wait for all its inputs, and TensorFlow would run those
with side effects one after the other.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline, CheckedStep
from savedmodel_bakery.exporter.pipeline.pipeline_file import DEFAULT_SIGNATURE
from savedmodel_bakery.exporter.pipeline.source_model import Asset, SourceModel
from savedmodel_bakery.exporter.pipeline.state import State, cpu_config, import_state
from savedmodel_bakery.exporter.publish import model_name
from savedmodel_bakery.exporter.signatures import Tensor as Form
from savedmodel_bakery.exporter.tensor_types import NodeDef, SignatureDef, Tensor
from savedmodel_bakery.wire import dtypes, schema

tf1 = tf.compat.v1

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


def save_pipeline(checked: CheckedPipeline, path: Path) -> None:
    """Write the SavedModel of a pipeline to `path`, which must not exist."""
    with tf.Graph().as_default(), tf1.Session(config=cpu_config()) as session:
        sources = {version: SourceModel(version, name) for version, name in _model_names(checked.steps).items()}
        states = {
            version: import_state(source, _needed_nodes(source, checked), session)
            for version, source in sources.items()
        }
        signature = _connect(checked, sources, states)
        initialisers = [operation for state in states.values() for operation in state.initialisers]
        try:
            builder = tf1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                session,
                [tf.saved_model.SERVING],
                {DEFAULT_SIGNATURE: signature},
                main_op=tf.group(*initialisers) if initialisers else None,
            )
            builder.save()
        except tf.errors.OpError as error:
            raise PublishError(f"cannot write the SavedModel: {error.message}") from error
    _add_assets(path, {sources[version].name: state.assets for version, state in states.items()})


def _connect(
    checked: CheckedPipeline, sources: Mapping[Path, SourceModel], states: Mapping[Path, State]
) -> SignatureDef:
    """Import the steps into the default graph, and return the signature of the pipeline."""
    inputs = {}
    for name in checked.pipeline.inputs:
        form = checked.tensors[name]
        inputs[name] = tf1.placeholder(dtypes.BY_NAME[form.dtype].number, _shape(form), name=_valid_name(name))
    tensors = dict(inputs)
    scopes = _unique_names(step.name for step in checked.steps)
    for step, scope in zip(checked.steps, scopes, strict=True):
        version = step.version.resolve()
        signature = sources[version].signatures[step.signature.name]
        fed = {signature.inputs[alias].name: tensors[name] for alias, name in step.step.input_map.items()}
        outputs = [signature.outputs[alias].name for alias in step.step.output_map]
        made = sources[version].import_into_default_graph(outputs, {**states[version].tensors, **fed}, scope)
        for name, tensor in zip(step.step.output_map.values(), made, strict=True):
            tensors[name] = _border(tensor, checked.tensors[name])
    info = tf1.saved_model.build_tensor_info
    return tf1.saved_model.build_signature_def(
        {name: info(tensor) for name, tensor in inputs.items()},
        {name: info(tensors[name]) for name in checked.pipeline.outputs},
        tf1.saved_model.signature_constants.PREDICT_METHOD_NAME,
    )


def _needed_nodes(source: SourceModel, checked: CheckedPipeline) -> list[NodeDef]:
    """Return the nodes of a model that steps run."""
    needed: dict[str, NodeDef] = {}
    for step in checked.steps:
        if step.version.resolve() == source.version:
            signature = source.signatures[step.signature.name]
            outputs = [signature.outputs[alias].name for alias in step.step.output_map]
            nodes = source.nodes(outputs, {info.name for info in signature.inputs.values()})
            needed.update((node.name, node) for node in nodes)
    return list(needed.values())


def _border(tensor: Tensor, form: Form) -> Tensor:
    """Return a tensor between steps.

    At run time it checks its shape, as a server checks that of a request. It also keeps TensorFlow from optimising
    operations of different steps together, such as two products with constants, which would round differently.
    """
    # EnsureShape rejects an unknown rank for a tensor whose rank is known.
    shape = tensor.shape if form.shape is None else _shape(form)
    with tf.control_dependencies(_completion(tensor.op)):
        return tf.ensure_shape(tensor, shape, name=f"tensors/{_valid_name(form.alias)}")


def _completion(operation: Any) -> list[Any]:
    """Return an operation that waits for a function call; nothing for other operations.

    TensorFlow inlines a function with side effects, such as an assertion, only if something waits for the call by a
    control edge. The first run of an image graph that isn't inlined takes several times as long. An edge that leads to
    an operation that takes an output of the call would be dropped as redundant, hence the NoOp.
    """
    if operation.type not in _CALLS:
        return []
    with tf.control_dependencies([operation]):
        return [tf.no_op(name=f"{operation.name}/completed")]


def _shape(form: Form) -> tf.TensorShape:
    return tf.TensorShape(None if form.shape is None else [None if size < 0 else size for size in form.shape])


def _model_names(steps: Iterable[CheckedStep]) -> dict[Path, str]:
    """Return unique names of the models by folder."""
    versions = list(dict.fromkeys(step.version.resolve() for step in steps))
    return dict(zip(versions, _unique_names(map(model_name, versions)), strict=True))


def _unique_names(names: Iterable[str]) -> list[str]:
    """Return names that operations can have; a name that is taken gets a number, such as `half_2`."""
    unique: list[str] = []
    for name in map(_valid_name, names):
        candidates = chain([name], (f"{name}_{number}" for number in count(2)))
        unique.append(next(candidate for candidate in candidates if candidate not in unique))
    return unique


def _valid_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", re.sub(r"^[^A-Za-z0-9.]", "x", name))


def _add_assets(path: Path, assets: Mapping[str, list[Asset]]) -> None:
    """Copy the models' assets into a SavedModel, each file once and with a number that makes its name unique."""
    file = path / "saved_model.pb"
    saved_model = schema.SavedModel.FromString(file.read_bytes())
    (meta_graph,) = saved_model.meta_graphs
    names: dict[Path, str] = {}
    for model, asset in ((model, asset) for model, used in assets.items() for asset in used):
        if asset.file not in names:
            names[asset.file] = f"{len(names) + 1}_{model}_{asset.file.name}"
            (path / "assets").mkdir(exist_ok=True)
            shutil.copyfile(asset.file, path / "assets" / names[asset.file])
        added = meta_graph.asset_file_def.add(filename=names[asset.file])
        added.tensor_info.name = asset.tensor
    file.write_bytes(saved_model.SerializeToString(deterministic=True))
