"""Describes the inputs and outputs of a signature as Triton's configuration does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from savedmodel_bakery.errors import TritonError
from savedmodel_bakery.exporter.signatures import Signature, Tensor

# Triton's types (model_config.proto) that arrays of the Python backend can have: BF16 is not among them. By the names
# of wire.dtypes.
DATA_TYPES = {
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


@dataclass(frozen=True)
class TritonTensor:
    """An input or output in Triton's configuration.

    Attributes:
        name: the signature's alias.
        data_type: name of Triton's type, such as `TYPE_STRING`.
        dims: sizes for callers, without the batch; -1 is any size. Never empty: Triton has no scalars.
        is_per_row: whether the signature has one value per row, where callers send an array of one element.
    """

    name: str
    data_type: str
    dims: tuple[int, ...]
    is_per_row: bool = False


@dataclass(frozen=True)
class TritonSignature:
    """A signature in Triton's configuration.

    Attributes:
        name: of the signature.
        inputs: one or more.
        outputs: one or more.
        max_batch_size: maximum rows of a request and of joined requests; 0 if the first dimension is not a batch
            dimension, and is among the `dims` of tensors.
    """

    name: str
    inputs: Sequence[TritonTensor]
    outputs: Sequence[TritonTensor]
    max_batch_size: int


def describe(signature: Signature, *, max_batch_size: int) -> TritonSignature:
    """Describe a signature for Triton.

    Args:
        signature: of a SavedModel.
        max_batch_size: 0 for a signature whose first dimension is not a batch dimension with independent rows.

    Raises:
        TritonError: it has a tensor that Triton can't have, or `max_batch_size` is not 0 and a tensor has no batch
            dimension.
    """
    if not signature.inputs:
        raise TritonError(f'signature "{signature.name}" cannot run on Triton: it has no inputs')
    inputs, outputs = (
        [
            convert(tensor, f'{role} "{tensor.alias}" of signature "{signature.name}"', max_batch_size=max_batch_size)
            for tensor in tensors
        ]
        for role, tensors in (("input", signature.inputs), ("output", signature.outputs))
    )
    return TritonSignature(signature.name, inputs, outputs, max_batch_size)


def convert(tensor: Tensor, place: str, *, max_batch_size: int) -> TritonTensor:
    """Describe a tensor for Triton.

    Args:
        tensor: of a signature or a pipeline.
        place: what messages call it.
        max_batch_size: 0 if its first dimension is not a batch dimension.

    Raises:
        TritonError: Triton can't have it.
    """
    if tensor.dtype not in DATA_TYPES:
        raise TritonError(
            f"the {place} cannot run on Triton: its type is {tensor.dtype}; must be one of {', '.join(DATA_TYPES)}"
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
    dims = tensor.shape[1:] if max_batch_size else tensor.shape
    return TritonTensor(
        tensor.alias, DATA_TYPES[tensor.dtype], tuple(dims) or (1,), is_per_row=bool(max_batch_size) and not dims
    )
