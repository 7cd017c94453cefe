"""Builds Triton's configuration of a model, config.pbtxt (model_config.proto). Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from google.protobuf import text_format

from savedmodel_bakery.errors import TritonError
from savedmodel_bakery.exporter.pipeline.check import CheckedPipeline
from savedmodel_bakery.exporter.signatures import Signature, Tensor
from savedmodel_bakery.wire.v2 import schema

# Rows of a request, and of requests that Triton joins. The graph of a baked model takes them a few at a time, so the
# limit is for their latency, not for memory.
DEFAULT_MAX_BATCH_SIZE = 32

# Triton's types (model_config.proto) that arrays of the Python backend can have: BF16 is not among them. By the names
# of wire.dtypes.
_DATA_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "half": "TYPE_FP16",
    "float": "TYPE_FP32",
    "double": "TYPE_FP64",
    "string": "TYPE_STRING",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How models run on Triton."""

    # Rows of a request and of joined requests; 0 for none. None is `DEFAULT_MAX_BATCH_SIZE` if the rows of all
    # signatures are known to be independent, else 0.
    max_batch_size: int | None = None
    instances: int = 1  # processes with a copy of each model; on GPUs, per GPU
    gpu: bool = False
    max_queue_delay_us: int = 0

    def batch_size(self, *, is_per_image: bool) -> int:
        """Return the maximum batch size of models; `is_per_image` if all of them are baked for images."""
        default = DEFAULT_MAX_BATCH_SIZE if is_per_image else 0
        size = default if self.max_batch_size is None else self.max_batch_size
        if not size and self.max_queue_delay_us:
            raise TritonError(
                f"invalid maximum queue delay {self.max_queue_delay_us}: must be 0 if the maximum batch size is 0"
            )
        return size


class InputData(NamedTuple):
    """The data of an input in a warm-up request."""

    file: str  # its name in the model's folder `warmup`
    dims: tuple[int, ...]  # without the batch
    data: bytes  # binary tensor data of the v2 protocol


def model_config(
    name: str,
    signature: Signature,
    options: Options,
    warmup: Sequence[Mapping[str, InputData]],
    *,
    max_batch_size: int,
) -> str:
    """Return the configuration of a model that runs one signature, which has an input.

    With a `max_batch_size` of 0, the first dimension is not a batch dimension.
    """
    owner = f' of signature "{signature.name}"'
    config = _config(name, signature.inputs, signature.outputs, owner, max_batch_size)
    for entry, tensor in zip((*config.input, *config.output), (*signature.inputs, *signature.outputs), strict=True):
        if max_batch_size and len(tensor.shape or ()) == 1:  # callers send an array of one element
            entry.reshape.SetInParent()  # to an empty shape
    config.backend = "python"
    config.parameters["signature_name"].string_value = signature.name
    config.version_policy.latest.num_versions = 1
    config.instance_group.add(count=options.instances, kind="KIND_GPU" if options.gpu else "KIND_CPU")
    if max_batch_size:
        config.dynamic_batching.max_queue_delay_microseconds = options.max_queue_delay_us
    data_types = {tensor.alias: _DATA_TYPES[tensor.dtype] for tensor in signature.inputs}
    for number, request in enumerate(warmup, 1):
        inputs = {
            alias: {"data_type": data_types[alias], "dims": data.dims, "input_data_file": data.file}
            for alias, data in request.items()
        }
        config.model_warmup.add(name=f"golden {number}", batch_size=1, inputs=inputs)
    return text_format.MessageToString(config, as_utf8=True)


def ensemble_config(name: str, checked: CheckedPipeline, *, max_batch_size: int) -> str:
    """Return the configuration of an ensemble, which runs the newest version of NAME.STEP for each step."""
    inputs = [checked.tensors[tensor] for tensor in checked.pipeline.inputs]
    outputs = [checked.tensors[tensor] for tensor in checked.pipeline.outputs]
    config = _config(name, inputs, outputs, "", max_batch_size)
    config.platform = "ensemble"
    for step in checked.steps:
        config.ensemble_scheduling.step.add(
            model_name=f"{name}.{step.name}",
            model_version=-1,
            input_map=step.step.input_map,
            output_map=step.step.output_map,
        )
    return text_format.MessageToString(config, as_utf8=True)


def _config(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], owner: str, max_batch_size: int) -> Any:
    config = schema.ModelConfig(name=name, max_batch_size=max_batch_size)
    for role, entries, tensors in (("input", config.input, inputs), ("output", config.output, outputs)):
        for tensor in tensors:
            dims = _dims(tensor, f'{role} "{tensor.alias}"{owner}', max_batch_size)
            entries.add(name=tensor.alias, data_type=_DATA_TYPES[tensor.dtype], dims=dims)
    return config


def _dims(tensor: Tensor, place: str, max_batch_size: int) -> list[int]:
    """Return the sizes for callers, without the batch; -1 is any size. Never empty: Triton has no scalars."""
    if tensor.dtype not in _DATA_TYPES:
        raise TritonError(
            f"the {place} cannot run on Triton: its type is {tensor.dtype}; must be one of {', '.join(_DATA_TYPES)}"
        )
    if tensor.shape is None:
        raise TritonError(f"the {place} cannot run on Triton: its number of dimensions is unknown")
    if 0 in tensor.shape:
        raise TritonError(f"the {place} cannot run on Triton: its shape {tensor.shape} has a size of 0")
    if max_batch_size and tensor.shape[:1] != [-1]:
        raise TritonError(
            f"invalid maximum batch size {max_batch_size}: the {place} has the shape {tensor.shape}, whose first "
            "size is not free; must be 0"
        )
    return (tensor.shape[1:] if max_batch_size else tensor.shape) or [1]
