"""What a model's metadata say of its signatures, and whether arrays fit them. Must not know a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from savedmodel_bakery.client.errors import InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire import dtypes, trees
from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.status import Code, StatusError


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        dtype: its element type; None for one whose values don't travel, such as a resource.
        shape: sizes of its axes, -1 for any; None where even their number is free.
    """

    dtype: DType | None
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "…" if self.shape is None else ",".join("?" if size < 0 else str(size) for size in self.shape)
        return f"{_name(self.dtype)}[{sizes}]"

    def admits(self, array: np.ndarray) -> bool:
        """Whether an array is of this element type, in any byte order, and of this shape."""
        return self._is_of_type(array) and self._is_of_shape(array.shape)

    def _is_of_type(self, array: np.ndarray) -> bool:
        if self.dtype is None:
            return True
        if self.dtype is dtypes.STRING:
            return dtypes.of_array(array) is dtypes.STRING
        return bool(array.dtype.newbyteorder("=") == self.dtype.numpy)

    def _is_of_shape(self, shape: tuple[int, ...]) -> bool:
        return self.shape is None or (
            len(shape) == len(self.shape)
            and all(wanted in (-1, size) for size, wanted in zip(shape, self.shape, strict=True))
        )


@dataclass(frozen=True)
class Signature:
    """One signature of one version.

    Attributes:
        title: what refusals call it: its name, model and version.
        inputs: by alias.
        outputs: by alias.
        optional: aliases of the inputs that have a default.
    """

    title: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    optional: frozenset[str]

    def fit(self, tree: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs in `tree` (see `wire.trees`) as arrays, by alias.

        Arrays keep their element types; numbers that are in none take the one that is wanted, where it holds them.

        Raises:
            RequestRefusedError: INVALID_ARGUMENT where names, element types or shapes are not the signature's.
            ValueError, TypeError: where something is no array, or has no name.
        """
        leaves = trees.flatten(tree, self.inputs.keys())
        arrays = {alias: as_array(alias, value, self.inputs.get(alias)) for alias, value in leaves.items()}
        missing = self.inputs.keys() - arrays.keys() - self.optional
        wrong = [f'there is no input "{alias}"' for alias in sorted(arrays.keys() - self.inputs.keys())]
        wrong += [f'input "{alias}" is missing' for alias in sorted(missing)]
        wrong += [
            f'input "{alias}" is {_name(dtypes.of_array(array))}[{",".join(map(str, array.shape))}]'
            for alias, array in arrays.items()
            if alias in self.inputs and not self.inputs[alias].admits(array)
        ]
        if wrong:
            takes = ", ".join(f"{alias}: {spec}" for alias, spec in sorted(self.inputs.items())) or "nothing"
            raise RequestRefusedError(Code.INVALID_ARGUMENT, f"{'; '.join(wrong)}; {self.title} takes {takes}")
        return arrays


@dataclass(frozen=True)
class Signatures:
    """All signatures of one version.

    Attributes:
        title: what refusals call the version.
        version: its number, which the metadata may not tell.
        by_name: the signatures.
    """

    title: str
    version: int | None
    by_name: Mapping[str, Signature]

    def find(self, name: str) -> Signature:
        """The signature of this name.

        Raises:
            RequestRefusedError: FAILED_PRECONDITION, as servers have it, where there is none.
        """
        if name not in self.by_name:
            names = ", ".join(f'"{known}"' for known in sorted(self.by_name) if not known.startswith("__")) or "none"
            raise RequestRefusedError(
                Code.FAILED_PRECONDITION, f'signature "{name}" not found in {self.title}; it has {names}'
            )
        return self.by_name[name]


def read_signatures(document: Mapping[str, Any]) -> Signatures:
    """Read GetModelMetadataResponse from the protobuf JSON that the REST API has.

    Raises:
        InvalidResponseError: where the document is no such message.
    """
    try:
        spec, definitions = document["model_spec"], document["metadata"]["signature_def"]["signature_def"]
        version = int(spec["version"]) if spec.get("version") is not None else None
        title = f'model "{spec["name"]}"' + ("" if version is None else f" version {version}")
        by_name = {
            name: Signature(
                f'signature "{name}" of {title}',
                _read_tensors(definition["inputs"]),
                _read_tensors(definition["outputs"]),
                frozenset(definition.get("defaults", ())),
            )
            for name, definition in definitions.items()
        }
        return Signatures(title, version, by_name)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise InvalidResponseError(f"the metadata are not those of the API: {exc!r}") from exc


def as_array(alias: str, value: Any, wanted: TensorSpec | None) -> np.ndarray:
    """An array of a value; see `Signature.fit`.

    Raises:
        RequestRefusedError: INVALID_ARGUMENT where its element type is none that travels.
        ValueError: where it is no array, such as a ragged list or a dict.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as exc:
        raise ValueError(f'input "{alias}" is no array: {exc}') from exc
    if isinstance(value, Mapping):
        raise ValueError(f'input "{alias}" is a {type(value).__name__}; this one is an array')
    try:
        dtypes.of_array(array)
    except StatusError as exc:
        raise RequestRefusedError(exc.code, exc.message) from exc
    if hasattr(value, "__array__"):
        return array
    if array.dtype.kind in "SU":
        # numpy's own string arrays drop zero bytes at the end, which images may well have.
        return np.array(value, object)
    return array if wanted is None or wanted.dtype is None else _converted(array, wanted.dtype)


def _converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Python's numbers in the element type that is wanted; as they were where it is none for them."""
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


def _read_tensors(tensors: Mapping[str, Any]) -> dict[str, TensorSpec]:
    found = {}
    for alias, tensor in tensors.items():
        shape = tensor["tensor_shape"]
        sizes = None if shape.get("unknown_rank") else tuple(int(dim["size"]) for dim in shape.get("dim", ()))
        found[alias] = TensorSpec(dtypes.BY_NAME.get(tensor["dtype"].removeprefix("DT_").lower()), sizes)
    return found


def _name(dtype: DType | None) -> str:
    """What numpy calls an element type; TensorFlow's name for those that numpy doesn't tell apart."""
    if dtype is None:
        return "resource"
    is_quantised = dtype.name.startswith(("qint", "quint"))
    return dtype.name if dtype is dtypes.STRING or is_quantised else str(dtype.numpy)
