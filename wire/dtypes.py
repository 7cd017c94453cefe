"""The element types of tensors: protobuf number, name, numpy dtype and TensorProto field of each.

Source: tensorflow/core/framework/types.proto and tensor.proto of TensorFlow 2.21.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from savedmodel_bakery.wire.status import invalid_argument


@dataclass(frozen=True)
class DType:
    """An element type."""

    number: int  # of the enum `tensorflow.DataType`
    name: str  # TensorFlow's lower-case name, as in error messages
    numpy: np.dtype  # in the machine's byte order; `object` for strings, whose elements are `bytes`
    field: str  # of the TensorProto, for typed values
    # Unsigned integers whose bit pattern `field` holds; None if it holds the value itself.
    storage: np.dtype | None = None

    @property
    def enum_name(self) -> str:
        """The name of the enum value, such as `DT_FLOAT`."""
        return "DT_" + self.name.upper()


def _row(number: int, name: str, numpy: object, field: str, storage: object = None) -> DType:
    return DType(number, name, np.dtype(numpy), field, None if storage is None else np.dtype(storage))  # type: ignore[call-overload]


_TABLE = (
    _row(1, "float", np.float32, "float_val"),
    _row(2, "double", np.float64, "double_val"),
    _row(3, "int32", np.int32, "int_val"),
    _row(4, "uint8", np.uint8, "int_val"),
    _row(5, "int16", np.int16, "int_val"),
    _row(6, "int8", np.int8, "int_val"),
    _row(7, "string", object, "string_val"),
    _row(8, "complex64", np.complex64, "scomplex_val"),
    _row(9, "int64", np.int64, "int64_val"),
    _row(10, "bool", np.bool_, "bool_val"),
    _row(11, "qint8", np.int8, "int_val"),
    _row(12, "quint8", np.uint8, "int_val"),
    _row(13, "qint32", np.int32, "int_val"),
    _row(14, "bfloat16", ml_dtypes.bfloat16, "half_val", np.uint16),
    _row(15, "qint16", np.int16, "int_val"),
    _row(16, "quint16", np.uint16, "int_val"),
    _row(17, "uint16", np.uint16, "int_val"),
    _row(18, "complex128", np.complex128, "dcomplex_val"),
    _row(19, "half", np.float16, "half_val", np.uint16),
    _row(22, "uint32", np.uint32, "uint32_val"),
    _row(23, "uint64", np.uint64, "uint64_val"),
    _row(24, "float8_e5m2", ml_dtypes.float8_e5m2, "float8_val", np.uint8),
    _row(25, "float8_e4m3fn", ml_dtypes.float8_e4m3fn, "float8_val", np.uint8),
    _row(29, "int4", ml_dtypes.int4, "int_val"),
    _row(30, "uint4", ml_dtypes.uint4, "int_val"),
)

MAX_DIMENSIONS = 254
"""TensorFlow's limit for a tensor (tensorflow/core/framework/tensor_shape.h, MaxDimensions)."""

BY_NUMBER = {row.number: row for row in _TABLE}
BY_NAME = {row.name: row for row in _TABLE}
STRING = BY_NAME["string"]

# Types that a TensorProto can have but that cannot be fed to a model.
HANDLES = {
    row.number: row
    for row in (_row(20, "resource", object, "resource_handle_val"), _row(21, "variant", object, "variant_val"))
}

# If types share a numpy dtype (int8 and qint8), an array has the plain one.
_BY_NUMPY = {row.numpy: row for row in reversed(_TABLE) if not row.name.startswith(("qint", "quint"))}


def of_number(number: int) -> DType:
    """Return the element type with this number of the enum `tensorflow.DataType`."""
    try:
        return BY_NUMBER[number]
    except KeyError:
        raise invalid_argument(
            f"invalid tensor element type {number}: must be one of {', '.join(map(str, sorted(BY_NUMBER)))}"
        ) from None


def of_array(array: np.ndarray) -> DType:
    """Return the element type of an array, whatever its byte order; `S`, `U` and object arrays are strings."""
    if array.dtype.kind in "SUO":
        return STRING
    try:
        return _BY_NUMPY[array.dtype.newbyteorder("=")]
    except KeyError:
        raise invalid_argument(
            f"cannot send an array of {array.dtype}: must be one of {', '.join(sorted(BY_NAME))}"
        ) from None


def object_array(items: Sequence[object]) -> np.ndarray:
    """Return items, such as strings, as an object array of one dimension."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def as_bytes(item: object, title: str = "a string array") -> bytes:
    """Return an element of a string array as bytes; text becomes UTF-8. `title` is the array in words, for errors."""
    if isinstance(item, bytes):
        return item
    if isinstance(item, str):
        return item.encode()
    raise invalid_argument(f"an element of {title} is {type(item).__name__}; must be bytes or str")
