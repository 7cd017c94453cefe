"""Builds Triton's configuration of a model, config.pbtxt (model_config.proto). Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.exporter.triton.tensors import TritonSignature, TritonTensor
from savedmodel_bakery.exporter.triton.warmup import Sample
from savedmodel_bakery.wire.v2 import schema

SIGNATURE_PARAMETER = "signature_name"


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How Triton runs a model.

    Attributes:
        instances: processes with a copy of the model; on GPUs, per GPU.
        gpu: whether they run on the GPUs.
        max_queue_delay_us: how long a request may wait for others to be joined with, in microseconds.
    """

    instances: int = 1
    gpu: bool = False
    max_queue_delay_us: int = 0


@dataclass(frozen=True)
class EnsembleStep:
    """A step of an ensemble; tensors of the ensemble by the names of the step's own.

    Attributes:
        model: name of the step's model.
        inputs: for each input.
        outputs: for each output that is used.
    """

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def model_config(name: str, signature: TritonSignature, execution: Execution, samples: Sequence[Sample]) -> str:
    """Return the configuration of a model that runs one signature.

    Args:
        name: of the model.
        signature: it runs.
        execution: how.
        samples: requests that an instance runs before it serves.
    """
    config = _config(name, signature.inputs, signature.outputs, signature.max_batch_size)
    for entry, tensor in zip((*config.input, *config.output), (*signature.inputs, *signature.outputs), strict=True):
        if tensor.is_per_row:
            entry.reshape.SetInParent()  # to an empty shape
    config.backend = "python"
    config.parameters[SIGNATURE_PARAMETER].string_value = signature.name
    config.version_policy.latest.num_versions = 1
    config.instance_group.add(count=execution.instances, kind="KIND_GPU" if execution.gpu else "KIND_CPU")
    if signature.max_batch_size:
        config.dynamic_batching.max_queue_delay_microseconds = execution.max_queue_delay_us
    data_types = {tensor.name: tensor.data_type for tensor in signature.inputs}
    for sample in samples:
        inputs = {
            alias: {"data_type": data_types[alias], "dims": data.dims, "input_data_file": data.file}
            for alias, data in sample.inputs.items()
        }
        config.model_warmup.add(name=sample.name, batch_size=1, inputs=inputs)
    return _to_text(config)


def ensemble_config(
    name: str,
    inputs: Sequence[TritonTensor],
    outputs: Sequence[TritonTensor],
    steps: Sequence[EnsembleStep],
    *,
    max_batch_size: int,
) -> str:
    """Return the configuration of an ensemble, which runs the newest version of each step.

    Args:
        name: of the ensemble.
        inputs: tensors that no step makes.
        outputs: tensors that callers get.
        steps: in any order.
        max_batch_size: of all steps.
    """
    config = _config(name, inputs, outputs, max_batch_size)
    config.platform = "ensemble"
    for step in steps:
        config.ensemble_scheduling.step.add(
            model_name=step.model, model_version=-1, input_map=step.inputs, output_map=step.outputs
        )
    return _to_text(config)


def _config(name: str, inputs: Sequence[TritonTensor], outputs: Sequence[TritonTensor], max_batch_size: int) -> Any:
    config = schema.ModelConfig(name=name, max_batch_size=max_batch_size)
    for entries, tensors in ((config.input, inputs), (config.output, outputs)):
        for tensor in tensors:
            entries.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    return config


def _to_text(config: Any) -> str:
    text: str = text_format.MessageToString(config, as_utf8=True)
    return text
