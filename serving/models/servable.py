"""A servable: one loaded version of a model, and the runtime that executes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from savedmodel_bakery.serving.admission.budget import Cost
from savedmodel_bakery.serving.runtimes import Runtime
from savedmodel_bakery.serving.telemetry.images import RowCounts
from savedmodel_bakery.wire import dtypes

_PICTURE = "png_bytes"  # the alias of the output of signature `preview`
_PNG_BYTES = 1024  # of a PNG file, beside its pixels


class SignatureTensors(NamedTuple):
    """A signature for Predict, as plain values: reading a SignatureDef takes longer than a small tensor."""

    method_name: str  # that it was exported for
    inputs: Mapping[str, str]  # names of tensors by alias, in the order of the aliases
    outputs: Mapping[str, str]  # names of tensors by alias, in the order of the aliases
    defaults: Mapping[str, Any]  # TensorProtos by alias of the inputs that a request may leave out


class OutputSize(NamedTuple):
    """The bytes that an output declares."""

    fixed: int = 0  # whatever the request has
    per_row: int = 0  # of the request


@dataclass(frozen=True)
class Servable:
    """A loaded version of a model."""

    name: str
    version: int
    runtime: Runtime  # executes the model
    max_pixels: int | None = None  # pixels of images that it decodes at one time in a run; None if that is not limited
    rows_per_run: int = 0  # images that it computes at one time; 0 if it was not baked
    row_bytes: int = 0  # the largest tensor in its graph, per image; 0 if that is not known
    row_counts: RowCounts | None = None  # counts the rows of its requests; None while it is warmed up

    @property
    def signatures(self) -> Mapping[str, Any]:
        """Return the SignatureDefs by signature name."""
        return self.runtime.signatures

    @cached_property
    def tensors(self) -> Mapping[str, SignatureTensors]:
        """The tensors of each signature, by signature name."""
        return {
            key: SignatureTensors(
                signature.method_name, _names(signature.inputs), _names(signature.outputs), dict(signature.defaults)
            )
            for key, signature in self.signatures.items()
        }

    @cached_property
    def output_sizes(self) -> Mapping[str, OutputSize]:
        """The sizes that the outputs declare, by the names of their tensors."""
        # A picture is of the pixels that signature `preprocess` returns, a byte each if it can't be compressed.
        preprocess = self.signatures.get("preprocess") if self.rows_per_run else None
        picture_bytes = 0
        if preprocess and "pixels" in preprocess.outputs:  # a protobuf map would create it
            picture_bytes = _PNG_BYTES + math.prod(_row_shape(preprocess.outputs["pixels"]))
        return {
            info.name: _output_size(info, picture_bytes if alias == _PICTURE else 0)
            for signature in self.signatures.values()
            for alias, info in signature.outputs.items()
        }

    def close(self) -> None:
        """Free the model's memory; no run may be in progress."""
        self.runtime.close()


def _names(tensors: Mapping[str, Any]) -> dict[str, str]:
    return {alias: tensors[alias].name for alias in sorted(tensors)}


def _output_size(info: Any, string_bytes: int) -> OutputSize:
    """Return the size that an output, a TensorInfo, declares; none if it does not say how many values it has."""
    dtype = dtypes.BY_NUMBER.get(info.dtype)
    shape = _row_shape(info)
    if dtype is None or info.tensor_shape.unknown_rank or min(shape, default=0) < 0:
        return OutputSize()
    size = (Cost.STRING + string_bytes if dtype is dtypes.STRING else dtype.numpy.itemsize) * math.prod(shape)
    rows = info.tensor_shape.dim[0].size if info.tensor_shape.dim else 1
    return OutputSize(per_row=size) if rows < 0 else OutputSize(fixed=rows * size)


def _row_shape(info: Any) -> list[int]:
    return [dim.size for dim in info.tensor_shape.dim[1:]]
