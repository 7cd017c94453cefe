"""Bodies of REST Predict requests and responses, in both roles.

A request is columnar (`inputs`, one entry per tensor) or in row format (`instances`, one entry per row); the response
has the format of its request. The client role uses the columnar format only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, DType, as_bytes, object_array, of_array
from savedmodel_bakery.wire.json.decode import (
    DECODABLE_TYPES,
    check_elements,
    decode_array,
    decode_regular,
    document_error,
    is_base64,
    pack,
)
from savedmodel_bakery.wire.json.encode import show_value, shown_name
from savedmodel_bakery.wire.json.parser import JsonValue, members_of
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

if TYPE_CHECKING:
    from savedmodel_bakery.wire.tensors import Tensor

BYTES_SUFFIX = "_bytes"


def encode_request(inputs: Mapping[str, np.ndarray], signature_name: str) -> bytes:
    """Write the body of a columnar Predict request (client role).

    Strings are `S`, `U` or object arrays of bytes and (UTF-8) str. The error for element types that servers do not read
    from JSON (half, bfloat16, uint16, complex, …) is UNIMPLEMENTED.
    """
    columns = {alias: _encode_column(alias, array) for alias, array in inputs.items()}
    return json.dumps({"signature_name": signature_name, "inputs": columns}, separators=(",", ":")).encode()


def _encode_column(alias: str, array: np.ndarray) -> Any:
    dtype = of_array(array)
    if dtype.name not in DECODABLE_TYPES:
        raise StatusError(
            Code.UNIMPLEMENTED,
            f'input "{alias}" is {dtype.name}, which servers do not read from JSON; they read '
            f"{', '.join(DECODABLE_TYPES)}",
        )
    if dtype is not STRING:
        return array.tolist()
    strings = [as_bytes(item, f'the string input "{alias}"') for item in array.ravel().tolist()]
    encoded = [{"b64": pybase64.b64encode_as_string(string)} for string in strings]
    return object_array(encoded).reshape(array.shape).tolist()


def signature_not_found(name: str) -> StatusError:
    """Return the error of a JSON request for a signature that the model does not have."""
    return invalid_argument(f'Serving signature name: "{shown_name(name)}" not found in signature def')


def decode_inputs(
    document: dict[str, JsonValue], input_dtypes: Mapping[str, DType], signature_name: str
) -> tuple[dict[str, Tensor], bool]:
    """Decode the `instances` or `inputs` of a document to the inputs of a signature (server role).

    Returns tensors by alias, and whether the request is in row format, where the first axis of each array is the rows.
    `signature_name` is for the error message if the signature has no inputs.
    """
    from savedmodel_bakery.wire.tensors import Tensor  # not at the top: REST clients do without protobuf

    if not input_dtypes:
        raise invalid_argument(f"Failed to get input map for signature: {shown_name(signature_name)}")
    if "instances" in document and "inputs" in document:
        raise document_error(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if "inputs" in document:
        arrays = _decode_columns(document["inputs"], input_dtypes)
    elif "instances" in document:
        arrays = _decode_rows(document, input_dtypes)
    else:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    tensors = {alias: Tensor(array, input_dtypes[alias]) for alias, array in arrays.items()}
    return tensors, "instances" in document


def _decode_columns(value: JsonValue, dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    if not isinstance(value, dict) or is_base64(value):
        if len(dtypes) != 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required"
                " as per tensorinfo_map"
            )
        return {alias: decode_array(value, dtype, alias) for alias, dtype in dtypes.items()}
    arrays = {}
    for alias, dtype in dtypes.items():
        if alias not in value:
            raise invalid_argument(f"Missing named input: {alias} in 'inputs' object.")
        arrays[alias] = decode_array(value[alias], dtype, alias)
    return arrays


def _decode_rows(document: dict[str, JsonValue], dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise document_error(document, "Expecting 'instances' to be an list/array")
    if not rows:
        raise document_error(document, "No values in 'instances' array")
    return _decode_named_rows(rows, dtypes) if _is_named_row(rows[0]) else _decode_plain_rows(rows, dtypes)


def _is_named_row(row: JsonValue) -> bool:
    return isinstance(row, dict) and not is_base64(row)


class _Column:
    """Collects the rows of one input."""

    def __init__(self, alias: str, dtype: DType) -> None:
        self.alias = alias
        self.dtype = dtype
        self.count = 0
        self.shape: list[int] = []
        self.elements: list[JsonValue] = []

    def add(self, row: JsonValue) -> None:
        self.shape, elements = self.check(row)
        self.count += 1
        self.elements += elements

    def check(self, row: JsonValue) -> tuple[list[int], list[JsonValue]]:
        """Return the shape and the elements of a row; reject one that differs from the rows before it."""
        shape, elements = check_elements(row, self.dtype)
        if self.count and len(elements) != (size := len(self.elements) // self.count):
            raise invalid_argument(f"Expecting tensor size: {size} but got: {len(elements)}")
        if self.count and shape != self.shape:
            raise invalid_argument(f"Expecting shape {_shape_text(self.shape)} but got: {_shape_text(shape)}")
        return shape, elements

    def array(self) -> np.ndarray:
        return pack(self.elements, [self.count, *self.shape], self.dtype, self.alias)


def _shape_text(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _decode_plain_rows(rows: list[JsonValue], dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    if len(dtypes) != 1 and not isinstance(rows[0], dict):
        raise invalid_argument(
            "instances is a plain list, but expecting list of objects as multiple input tensors required"
            " as per tensorinfo_map"
        )
    alias, dtype = min(dtypes.items())  # there are several only if the rows are base64 objects, which fail below
    regular = decode_regular(rows, dtype, alias)
    if regular is not None:
        return {alias: regular}
    column = _Column(alias, dtype)
    for index, row in enumerate(rows):
        if _is_named_row(row):
            raise invalid_argument(f"Expecting value/list but got object at item {index} of input list")
        try:
            column.add(row)
        except StatusError as error:
            raise _row_error(index, "", error) from None
    return {alias: column.array()}


def _row_error(index: int, key: str, error: StatusError) -> StatusError:
    return invalid_argument(f"Failed to process element: {index}{key} of 'instances' list. Error: {error}")


def _decode_named_rows(rows: list[JsonValue], dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    regular = _decode_regular_named_rows(rows, dtypes)
    if regular is not None:
        return regular
    columns = {alias: _Column(alias, dtype) for alias, dtype in dtypes.items()}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or is_base64(row):
            raise invalid_argument(f"Expecting object but got list at item {index} of input list")
        for full_name, value in members_of(row):
            name = full_name.partition("\0")[0]  # tensorflow_model_server reads it as a C string
            try:
                if name not in columns:
                    raise invalid_argument(f"JSON object: does not have named input: {shown_name(name)}")
                if columns[name].count > index:  # a repeated key
                    columns[name].check(value)
                else:
                    columns[name].add(value)
            except StatusError as error:
                raise _row_error(index, f" key: {shown_name(name)}", error) from None
        if any(column.count <= index for column in columns.values()):
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: {show_value(row)}"
                f" keys must be equal to: {','.join(sorted(dtypes))}"
            )
    return {alias: column.array() for alias, column in columns.items()}


def _decode_regular_named_rows(rows: list[JsonValue], dtypes: Mapping[str, DType]) -> dict[str, np.ndarray] | None:
    keys = dtypes.keys()
    named = [row for row in rows if isinstance(row, dict) and row.keys() == keys and not is_base64(row)]
    if len(named) != len(rows) or any(len(members_of(row)) != len(keys) for row in named):
        return None
    arrays = {}
    for alias, dtype in dtypes.items():
        regular = decode_regular([row[alias] for row in named], dtype, alias)
        if regular is None:
            return None
        arrays[alias] = regular
    return arrays
