"""The values of a tensor as JSON: `data` of an input or output, nested or flat."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import BY_NAME, STRING, DType
from savedmodel_bakery.wire.json.decode import decode_array
from savedmodel_bakery.wire.json.encode import quote_bytes
from savedmodel_bakery.wire.json.parser import JsonValue
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.v2.datatypes import BINARY_ONLY, of_dtype

_SLICE = 2**14  # elements per step, so that other threads are blocked for milliseconds only


def decode_data(data: JsonValue, dtype: DType, shape: Sequence[int], tensor: str) -> np.ndarray:
    """Decode `data` to an array of one dimension: a list nested like the shape, or a flat one in row-major order.

    `tensor` is the tensor in words, for error messages.
    """
    datatype = of_dtype(dtype, tensor)
    if datatype in BINARY_ONLY:
        raise invalid_argument(f"{tensor} is {datatype}, which travels as binary data only, and has JSON data")
    is_narrow = dtype.numpy.kind in "iu" and dtype.name != "uint64"
    try:
        array = decode_array(data, BY_NAME["int64"] if is_narrow else dtype, tensor)
    except (StatusError, OverflowError) as error:
        reason = error.message if isinstance(error, StatusError) else error
        raise invalid_argument(f"{tensor} cannot be read as {datatype}: {reason}") from error
    if array.shape != tuple(shape) and array.shape != (math.prod(shape),):
        raise invalid_argument(
            f"{tensor} has data of shape {list(array.shape)}; its shape is {list(shape)}, so data must be nested like "
            f"that, or a flat list of {math.prod(shape)} values"
        )
    values = array.reshape(-1)
    return narrow(values, dtype, tensor) if is_narrow else values


def narrow(values: np.ndarray, dtype: DType, tensor: str) -> np.ndarray:
    """Convert integers to their element type, if they are in its range."""
    limits = np.iinfo(dtype.numpy)
    if values.size and not (limits.min <= values.min() and values.max() <= limits.max):
        raise invalid_argument(
            f"{tensor} has a value out of range: {of_dtype(dtype, tensor)} is between {limits.min} and {limits.max}"
        )
    return values.astype(dtype.numpy, copy=False)


def encode_data(array: np.ndarray, dtype: DType, tensor: str, *, as_base64: bool = False) -> bytes:
    """Write `data` as a flat list.

    Strings are written as they are, valid UTF-8 or not, as Triton writes them. NaN and infinity are `NaN`, `Infinity`
    and `-Infinity`.
    """
    datatype = of_dtype(dtype, tensor)
    if datatype in BINARY_ONLY:
        raise invalid_argument(
            f"{tensor} is {datatype}, which travels as binary data only: request it with the parameter binary_data"
        )
    flat = array.reshape(-1)
    if dtype is STRING:
        quoted = map(pybase64.b64encode_as_string, flat) if as_base64 else None
        texts = (f'"{text}"' for text in quoted) if quoted else map(quote_bytes, flat)
        return b"[" + ",".join(texts).encode("latin-1") + b"]"
    slices = (flat[start : start + _SLICE].tolist() for start in range(0, len(flat), _SLICE))
    return b"[" + b",".join(json.dumps(part, separators=(",", ":"))[1:-1].encode() for part in slices) + b"]"
