"""Builds Triton's configuration of a model, config.pbtxt (model_config.proto). Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import text_format

from savedmodel_bakery.errors import TritonError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.triton.tensors import TritonSignature, TritonTensor, convert
from savedmodel_bakery.exporter.triton.warmup import InputData
from savedmodel_bakery.wire.v2 import schema

# Rows of a request, and of requests that Triton joins. The graph of a baked model takes them a few at a time, so the
# limit is for their latency, not for memory.
DEFAULT_MAX_BATCH_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Options:
    """How models run on Triton.

    Attributes:
        max_batch_size: maximum rows of a request and of joined requests; 0 for none, None for
            `DEFAULT_MAX_BATCH_SIZE` if it is known that the rows of all signatures are independent, else 0.
        instances: processes with a copy of each model; on GPUs, per GPU.
        gpu: whether they run on the GPUs.
        max_queue_delay_us: how long a request may wait for others to be joined with, in microseconds.
    """

    max_batch_size: int | None = None
    instances: int = 1
    gpu: bool = False
    max_queue_delay_us: int = 0

    def batch_size(self, *, is_per_image: bool) -> int:
        """Return the maximum batch size of models; `is_per_image` if all of them are baked for images.

        Raises:
            TritonError: it is 0 but a queue delay is set.
        """
        default = DEFAULT_MAX_BATCH_SIZE if is_per_image else 0
        size = default if self.max_batch_size is None else self.max_batch_size
        if not size and self.max_queue_delay_us:
            raise TritonError(
                f"invalid maximum queue delay {self.max_queue_delay_us}: must be 0 if the maximum batch size is 0"
            )
        return size


def model_config(
    name: str, signature: TritonSignature, options: Options, warmup: Sequence[Mapping[str, InputData]]
) -> str:
    """Return the configuration of a model that runs one signature.

    Args:
        name: of the model.
        signature: it runs.
        options: how.
        warmup: inputs, by name, of requests that an instance runs before it serves.
    """
    config = _config(name, signature.inputs, signature.outputs, signature.max_batch_size)
    for entry, tensor in zip((*config.input, *config.output), (*signature.inputs, *signature.outputs), strict=True):
        if tensor.is_per_row:
            entry.reshape.SetInParent()  # to an empty shape
    config.backend = "python"
    config.parameters["signature_name"].string_value = signature.name
    config.version_policy.latest.num_versions = 1
    config.instance_group.add(count=options.instances, kind="KIND_GPU" if options.gpu else "KIND_CPU")
    if signature.max_batch_size:
        config.dynamic_batching.max_queue_delay_microseconds = options.max_queue_delay_us
    data_types = {tensor.name: tensor.data_type for tensor in signature.inputs}
    for number, request in enumerate(warmup, 1):
        inputs = {
            alias: {"data_type": data_types[alias], "dims": data.dims, "input_data_file": data.file}
            for alias, data in request.items()
        }
        config.model_warmup.add(name=f"golden {number}", batch_size=1, inputs=inputs)
    return _to_text(config)


def ensemble_config(name: str, checked: CheckedPipeline, *, max_batch_size: int) -> str:
    """Return the configuration of an ensemble, which runs the newest version of the model of each step.

    Args:
        name: of the ensemble; the models are named NAME.STEP.
        checked: the pipeline.
        max_batch_size: of all steps.

    Raises:
        TritonError: Triton can't have an input or output of the pipeline.
    """
    inputs, outputs = (
        [convert(checked.tensors[tensor], f'{role} "{tensor}"', max_batch_size=max_batch_size) for tensor in tensors]
        for role, tensors in (("input", checked.pipeline.inputs), ("output", checked.pipeline.outputs))
    )
    config = _config(name, inputs, outputs, max_batch_size)
    config.platform = "ensemble"
    for step in checked.steps:
        config.ensemble_scheduling.step.add(
            model_name=f"{name}.{step.name}",
            model_version=-1,
            input_map=step.step.input_map,
            output_map=step.step.output_map,
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
