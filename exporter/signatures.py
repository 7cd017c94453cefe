"""Reads the signatures of a SavedModel from its saved_model.pb, without loading the model or TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from savedmodel_bakery.errors import PublishError
from savedmodel_bakery.exporter.tensor_types import MetaGraphDef
from savedmodel_bakery.wire import dtypes, schema

INIT_SIGNATURE = "__saved_model_init_op"
"""TensorFlow 2 keeps its initialisation in this signature; clients don't call it."""

ENCODED_FEATURE = "image/encoded"
"""The feature of an Example that holds the bytes of an image."""

SECOND_ENCODED_FEATURE = "image_2/encoded"
"""The feature that holds the bytes of a second image."""

_SERVE = "serve"
_UNKNOWN_SIZE = -1
_ENCODINGS = {"coo_sparse": "sparse ", "composite_tensor": "composite "}  # other than plain tensors


@dataclass(frozen=True)
class Tensor:
    """One input or output of a signature; an unknown size is -1, an unknown rank None."""

    alias: str
    dtype: str
    shape: list[int] | None

    def __str__(self) -> str:
        return f"{self.alias}: {self.form}"

    @property
    def form(self) -> str:
        """Dtype and shape, such as `float [?, 4]`."""
        sizes = "unknown" if self.shape is None else ", ".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{self.dtype} [{sizes}]"


@dataclass(frozen=True)
class Signature:
    """One signature of a SavedModel; inputs and outputs are sorted by alias."""

    name: str
    method: str
    inputs: list[Tensor]
    outputs: list[Tensor]


def read_signatures(version: Path) -> list[Signature]:
    """Read the signatures of a version's folder, sorted by name."""
    return [
        Signature(name, definition.method_name, _tensors(definition.inputs), _tensors(definition.outputs))
        for name, definition in sorted(read_meta_graph(version).signature_def.items())
        if name != INIT_SIGNATURE
    ]


def read_meta_graph(version: Path) -> MetaGraphDef:
    """Read the graph for serving, in `wire.schema`'s message class, from a version's folder."""
    try:
        saved_model = schema.SavedModel.FromString((version / "saved_model.pb").read_bytes())
        return next(graph for graph in saved_model.meta_graphs if _SERVE in graph.meta_info_def.tags)
    except OSError as error:
        raise PublishError(
            f"no SavedModel in {version} (saved_model.pb: {error.strerror}); give the folder of a version, such as "
            "MODEL/1"
        ) from error
    except (DecodeError, StopIteration) as error:
        raise PublishError(f"{version / 'saved_model.pb'} is damaged, or has no graph tagged {_SERVE}") from error


def _tensors(infos: Mapping[str, Any]) -> list[Tensor]:
    tensors = []
    for alias, info in sorted(infos.items()):
        dtype = dtypes.BY_NUMBER[info.dtype].name if info.dtype in dtypes.BY_NUMBER else f"dtype {info.dtype}"
        shape = None if info.tensor_shape.unknown_rank else [dim.size for dim in info.tensor_shape.dim]
        tensors.append(Tensor(alias, _ENCODINGS.get(info.WhichOneof("encoding"), "") + dtype, shape))
    return tensors


def unify(first: Tensor, second: Tensor) -> Tensor | None:
    """Return the first tensor with the shape of both, where unknown sizes match any; None if they differ."""
    if first.dtype != second.dtype:
        return None
    if first.shape is None or second.shape is None:
        return Tensor(first.alias, first.dtype, second.shape if first.shape is None else first.shape)
    if len(first.shape) != len(second.shape):
        return None
    shape = []
    for size, other in zip(first.shape, second.shape, strict=True):
        if _UNKNOWN_SIZE not in (size, other) and size != other:
            return None
        shape.append(other if size == _UNKNOWN_SIZE else size)
    return Tensor(first.alias, first.dtype, shape)


def unify_all(tensors: Iterable[Tensor]) -> Tensor | None:
    """Unify one tensor or more, from the first to the last."""
    first, *others = tensors
    unified: Tensor | None = first
    for other in others:
        unified = None if unified is None else unify(unified, other)
    return unified
