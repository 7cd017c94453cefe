"""The datatypes of the v2 protocol and their element types.

Source: "Tensor Data Types" of the Open Inference Protocol; BF16 is Triton's.
"""

from __future__ import annotations

import json

from savedmodel_bakery.wire.dtypes import BY_NAME, BY_NUMBER, HANDLES, DType
from savedmodel_bakery.wire.status import invalid_argument

_NAMES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "half": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": "BYTES",
    "bfloat16": "BF16",
}
_DTYPES = {datatype: BY_NAME[name] for name, datatype in _NAMES.items()}

_SHOWN_CHARACTERS = 200

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
