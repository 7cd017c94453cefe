"""Tensors of the v2 protocol: their datatypes and shapes, and their values as binary tensor data.

Values are little-endian and row-major; an element of BYTES is its length as four bytes, followed by its bytes.
Sources: "Tensor Data Types" of the Open Inference Protocol (BF16 is Triton's), and Triton's "Binary Tensor Data
Extension", which the gRPC messages use too.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.wire.dtypes import (
    BY_NAME,
    BY_NUMBER,
    HANDLES,
    MAX_DIMENSIONS,
    STRING,
    DType,
    as_bytes,
    object_array,
)
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import Tensor, is_unrepresentable, values_in

_INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_NAMES = {name: name.upper() for name in ("bool", *_INTEGERS)}
_NAMES |= {"half": "FP16", "float": "FP32", "double": "FP64", "string": "BYTES", "bfloat16": "BF16"}
_DTYPES = {datatype: BY_NAME[name] for name, datatype in _NAMES.items()}

_SHOWN_CHARACTERS = 200
_LENGTH = struct.Struct("<I")
_MAX_STRING_BYTES = 2**32 - 1
_MAX_SIZE = 2**63 - 1

Hook = Callable[[], None]

BINARY_ONLY = frozenset({"FP16", "BF16"})
"""Datatypes whose values travel as binary data only: neither JSON nor typed contents can represent them."""


def of_dtype(dtype: DType, tensor: str) -> str:
    """Return the datatype of an element type. `tensor` is the tensor in words, such as `output "x"`, for errors."""
    if dtype.name not in _NAMES:
        raise invalid_argument(
            f"{tensor} is {dtype.name}, which the v2 protocol cannot express; its datatypes are {', '.join(_DTYPES)}"
        )
    return _NAMES[dtype.name]


def of_number(number: int, tensor: str) -> str:
    """Return the datatype of a number of the enum `tensorflow.DataType`; otherwise as `of_dtype`."""
    dtype = BY_NUMBER.get(number) or HANDLES.get(number)
    if dtype is None:
        raise invalid_argument(f"{tensor} has the unknown element type {number}")
    return of_dtype(dtype, tensor)


def to_dtype(datatype: object, tensor: str) -> DType:
    """Return the element type of a datatype."""
    if not isinstance(datatype, str) or datatype not in _DTYPES:
        raise invalid_argument(f"{tensor} has the datatype {shown(datatype)}; must be one of {', '.join(_DTYPES)}")
    return _DTYPES[datatype]


def shown(value: object) -> str:
    """Return a value of a request for an error message, in quotation marks if it is a string, and shortened."""
    text = f'"{value}"' if isinstance(value, str) else "null" if value is None else type(value).__name__
    if isinstance(value, (bool, int, float)):
        text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + '…"'


class SentTensor(NamedTuple):
    """A tensor as a message declares it; values that are not JSON are decoded on request.

    `values` decodes the values to an array of one dimension; it calls its argument when their number is known to be
    that of the shape, before it uses memory for them. Values in JSON have been decoded already, without a call.
    """

    name: str
    tensor: str  # its role and name, such as `input "x"`, for error messages
    dtype: DType
    shape: tuple[int, ...]
    values: Callable[[Hook], np.ndarray]

    def decode(self, on_size: Callable[[DType, tuple[int, ...]], None] = lambda _dtype, _shape: None) -> Tensor:
        """Return the tensor.

        `on_size` is called with the element type and the shape before memory is used for the values, unless they are
        JSON; it may raise StatusError.
        """
        values = self.values(lambda: on_size(self.dtype, self.shape))
        if is_unrepresentable(self.shape, self.dtype.numpy):
            return Tensor(values, self.dtype, self.shape)
        return Tensor(values.reshape(self.shape), self.dtype)


def read_shape(sizes: Any, tensor: str) -> tuple[int, ...]:
    """Return the shape that a message declares: at most `MAX_DIMENSIONS` sizes, and elements that 64 bits can count."""
    is_list = isinstance(sizes, Sequence) and not isinstance(sizes, str) and len(sizes) <= MAX_DIMENSIONS
    if not is_list or not all(type(size) is int and 0 <= size <= _MAX_SIZE for size in sizes):
        raise invalid_argument(
            f"{tensor} needs a shape: a list of at most {MAX_DIMENSIONS} integers between 0 and {_MAX_SIZE}"
        )
    if 0 not in sizes and math.prod(sizes) > _MAX_SIZE:
        raise invalid_argument(f"{tensor} has a shape of too many elements: must be at most {_MAX_SIZE}")
    return tuple(sizes)


def decode_raw(content: Any, dtype: DType, shape: Sequence[int], tensor: str, on_size: Hook) -> np.ndarray:
    """Decode binary tensor data to an aligned array of one dimension, read-only if it shares memory with `content`.

    Strings become objects of bytes. `tensor` is the tensor in words; see `SentTensor.values` for `on_size`.
    """
    count = math.prod(shape)
    if dtype is STRING:
        if _LENGTH.size * count > len(content):
            raise invalid_argument(
                f"{tensor} has {len(content)} bytes of data; the lengths of {count} elements of BYTES alone need "
                f"{_LENGTH.size * count}"
            )
        on_size()
        return object_array(_unpack_strings(content, count, tensor))
    needed = count * dtype.numpy.itemsize
    if len(content) != needed:
        raise invalid_argument(
            f"{tensor} has {len(content)} bytes of data; {count} values of {of_dtype(dtype, tensor)} need {needed}"
        )
    on_size()
    if dtype.name == "bool" and np.frombuffer(content, np.uint8).max(initial=0) > 1:
        raise invalid_argument(f"{tensor} has a BOOL that is neither 0 nor 1")
    return values_in(content, dtype)


def encode_raw(array: np.ndarray, dtype: DType) -> Any:
    """Encode an array as binary tensor data: bytes, or the array itself as uint8 if it has that layout already."""
    if dtype is STRING:
        return b"".join(piece for item in array.ravel().tolist() for piece in _pack_string(as_bytes(item)))
    values = np.asarray(array, dtype=dtype.numpy, order="C")
    return values.reshape(-1).view(np.uint8)


def raw_size(array: np.ndarray, dtype: DType) -> int:
    """Return the bytes that `encode_raw` returns for an array, whose strings are bytes."""
    if dtype is STRING:
        return _LENGTH.size * array.size + sum(map(len, array.flat))
    return array.size * dtype.numpy.itemsize


def _pack_string(string: bytes) -> tuple[bytes, bytes]:
    if len(string) > _MAX_STRING_BYTES:
        raise invalid_argument(f"a string has {len(string)} bytes; the v2 protocol allows {_MAX_STRING_BYTES} at most")
    return _LENGTH.pack(len(string)), string


def _unpack_strings(content: Any, count: int, tensor: str) -> list[bytes]:
    size = len(content)
    strings = []
    end = 0
    for index in range(count):
        start = end + _LENGTH.size
        end = start + _LENGTH.unpack_from(content, end)[0] if start <= size else start
        if end > size:
            raise invalid_argument(f"{tensor} has {size} bytes of data, which end within element {index} of {count}")
        strings.append(bytes(content[start:end]))
    if end != size:
        raise invalid_argument(f"{tensor} has {size} bytes of data; its {count} elements of BYTES need {end}")
    return strings
