"""Reads signatures from a model's metadata, and checks inputs against them. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire import dtypes, trees
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError

DEFAULT_SIGNATURE = "serving_default"
TOP_K_SIGNATURE = "top_k"
CLASSIFY_SIGNATURE = "classify"
REGRESS_SIGNATURE = "regress"


@dataclass(frozen=True)
class TensorSpec:
    """The declaration of one input or output."""

    dtype: DType | None  # None for types whose values cannot be sent, such as a resource
    shape: tuple[int, ...] | None  # -1 for any size; None if the rank is unknown

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ",".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{_dtype_name(self.dtype)}[{sizes}]"

    def admits(self, array: np.ndarray) -> bool:
        """Return whether an array has this element type, in any byte order, and this shape."""
        if self.dtype is dtypes.STRING:
            has_dtype = dtypes.of_array(array) is dtypes.STRING
        else:
            has_dtype = self.dtype is None or array.dtype.newbyteorder("=") == self.dtype.numpy
        has_shape = self.shape is None or (
            array.ndim == len(self.shape)
            and all(declared in (-1, size) for size, declared in zip(array.shape, self.shape, strict=True))
        )
        return bool(has_dtype and has_shape)


@dataclass(frozen=True)
class Signature:
    """One signature of one version."""

    title: str  # name, model and version, for error messages
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    optional: frozenset[str]  # inputs that have a default
    has_scalars: bool = True  # whether a row may be a scalar; in Triton it is [1] instead

    def fit(self, tree: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the inputs in `tree` (see `wire.trees`) as arrays by alias.

        Arrays keep their element types. Python numbers are converted to the declared type if it can represent them.
        Without scalars, an array that only lacks a last axis of size 1 gets it. Raises RequestRefusedError if names,
        element types or shapes do not match the signature, and ValueError or TypeError for a value that is not an
        array.
        """
        leaves = trees.flatten(tree, self.inputs.keys())
        arrays = {alias: as_array(alias, value, self.inputs.get(alias)) for alias, value in leaves.items()}
        if not self.has_scalars:
            arrays = {alias: _with_scalar_axis(array, self.inputs.get(alias)) for alias, array in arrays.items()}
        missing = self.inputs.keys() - arrays.keys() - self.optional
        errors = [f'unknown input "{alias}"' for alias in sorted(arrays.keys() - self.inputs.keys())]
        errors += [f'input "{alias}" is missing' for alias in sorted(missing)]
        errors += [
            f'input "{alias}" is {_dtype_name(dtypes.of_array(array))}[{",".join(map(str, array.shape))}]'
            for alias, array in arrays.items()
            if alias in self.inputs and not self.inputs[alias].admits(array)
        ]
        if errors:
            declared = ", ".join(f"{alias}: {spec}" for alias, spec in sorted(self.inputs.items())) or "nothing"
            raise RequestRefusedError(Code.INVALID_ARGUMENT, f"{'; '.join(errors)}; {self.title} takes {declared}")
        return arrays


@dataclass(frozen=True)
class Signatures:
    """All signatures of one version."""

    title: str  # model and version, for error messages
    version: int | None  # None if the metadata do not contain it
    by_name: Mapping[str, Signature]

    def find(self, name: str) -> Signature:
        """Return the signature with this name; the error has FAILED_PRECONDITION, the code that servers send."""
        if name not in self.by_name:
            names = ", ".join(f'"{known}"' for known in sorted(self.by_name) if not known.startswith("__")) or "none"
            raise RequestRefusedError(
                Code.FAILED_PRECONDITION, f'signature "{name}" not found in {self.title}; it has {names}'
            )
        return self.by_name[name]


def read_signatures(document: Mapping[str, Any]) -> Signatures:
    """Read GetModelMetadataResponse from the protobuf JSON of the REST API."""
    try:
        spec, definitions = document["model_spec"], document["metadata"]["signature_def"]["signature_def"]
        version = int(spec["version"]) if spec.get("version") is not None else None
        title = f'model "{spec["name"]}"' + ("" if version is None else f" version {version}")
        by_name = {
            name: _read_signature(f'signature "{name}" of {title}', definition)
            for name, definition in definitions.items()
        }
        return Signatures(title, version, by_name)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidResponseError(f"the metadata are not a valid GetModelMetadataResponse: {exc!r}") from exc


def as_array(alias: str, value: Any, declared: TensorSpec | None) -> np.ndarray:
    """Convert the value of an input to an array; see `Signature.fit`."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as exc:
        raise ValueError(f'input "{alias}" is not an array: {exc}') from exc
    if isinstance(value, Mapping):
        raise ValueError(f'input "{alias}" is a {type(value).__name__}; it must be an array')
    if array.dtype.kind == "O" and any(item is None for item in array.flat):
        raise ValueError(f'input "{alias}" {"is" if value is None else "contains"} None; it must be an array')
    try:
        dtypes.of_array(array)
    except StatusError as exc:
        raise RequestRefusedError(exc.code, exc.message) from exc
    if hasattr(value, "__array__"):
        return array
    if array.dtype.kind in "SU":
        # numpy's string arrays drop zero bytes at the end, which images may have.
        return np.array(value, object)
    return array if declared is None or declared.dtype is None else _convert_numbers(array, declared.dtype)


def _convert_numbers(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Return Python numbers in an element type; unchanged if the type cannot represent them."""
    is_integer = dtype.numpy.kind in "iu" or dtype.name in ("int4", "uint4")
    if dtype is dtypes.STRING or dtype.name == "bool" or array.dtype.kind not in ("iu" if is_integer else "iufc"):
        return np.zeros(array.shape, dtype.numpy) if array.size == 0 else array
    if array.dtype.kind == "c" and dtype.numpy.kind != "c":
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(dtype.numpy)
        back = converted.astype(array.dtype)
    if is_integer:
        return converted if np.array_equal(back, array) else array
    return converted if np.array_equal(np.isfinite(back), np.isfinite(array)) else array


def _read_signature(title: str, definition: Mapping[str, Any]) -> Signature:
    """Read a SignatureDef.

    Without `method_name`, which TensorFlow Serving of any version states, it comes from another server of the v2
    protocol, whose metadata state neither which inputs may be left out nor whether [-1] is an unknown rank; the server
    checks that. Older TensorFlow Serving states no `defaults`.
    """
    inputs, outputs = _read_tensors(definition["inputs"]), _read_tensors(definition["outputs"])
    if "method_name" in definition:
        return Signature(title, inputs, outputs, frozenset(definition.get("defaults", ())))
    inputs = {alias: TensorSpec(spec.dtype, None) if spec.shape == (-1,) else spec for alias, spec in inputs.items()}
    return Signature(title, inputs, outputs, frozenset(inputs), has_scalars=False)


def _with_scalar_axis(array: np.ndarray, declared: TensorSpec | None) -> np.ndarray:
    if declared is None or declared.shape is None or declared.shape[-1:] != (1,):
        return array
    extended = array[..., np.newaxis]
    return extended if declared.admits(extended) else array


def _read_tensors(tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    specs = {}
    for alias, tensor in tensors.items():
        shape = tensor["tensor_shape"]
        sizes = None if shape.get("unknown_rank") else tuple(int(dim["size"]) for dim in shape.get("dim", ()))
        specs[alias] = TensorSpec(dtypes.BY_NAME.get(tensor["dtype"].removeprefix("DT_").lower()), sizes)
    return specs


def _dtype_name(dtype: DType | None) -> str:
    """Return numpy's name of an element type, or TensorFlow's for types that are the same to numpy."""
    if dtype is None:
        return "resource"
    is_quantised = dtype.name.startswith(("qint", "quint"))
    return dtype.name if dtype is dtypes.STRING or is_quantised else str(dtype.numpy)
