"""Bodies of REST Predict requests and responses, in both roles.

A request is columnar (`inputs`, one entry per tensor) or in row format (`instances`, one entry per row); the response
has the format of its request. The client role uses the columnar format only. Knows nothing of HTTP or models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import BY_NAME, STRING, DType, of_array
from savedmodel_bakery.wire.json.decode import (
    DECODABLE_TYPES,
    check_elements,
    decode_array,
    decode_regular,
    document_error,
    is_base64,
    pack,
    parse_document,
)
from savedmodel_bakery.wire.json.encode import element_texts, nest, new_line, quote_bytes
from savedmodel_bakery.wire.json.limits import NO_LIMITS, ParseLimits
from savedmodel_bakery.wire.json.parser import JsonValue, members_of
from savedmodel_bakery.wire.json.text import show_value, shown_name
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

if TYPE_CHECKING:
    from savedmodel_bakery.wire.tensors import Tensor

BYTES_SUFFIX = "_bytes"
_ELEMENT_BYTES = 256  # of a number as text, in the lists of texts, and in the response
_CONTENT_COPIES = 30  # with escapes


def encode_request(inputs: Mapping[str, np.ndarray], signature_name: str) -> bytes:
    """Write the body of a columnar Predict request (client role).

    Args:
        inputs: arrays by alias, of any shape; strings as `S`, `U` or object arrays of bytes and (UTF-8) str.
        signature_name: the signature to run.

    Raises:
        StatusError: UNIMPLEMENTED for element types that servers do not read from JSON (half, bfloat16, uint16,
            complex, …), INVALID_ARGUMENT for arrays that cannot be sent at all.
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
    objects = np.empty(array.size, object)
    objects[:] = [{"b64": _encode_base64(alias, item)} for item in array.ravel().tolist()]
    return objects.reshape(array.shape).tolist()


def _encode_base64(alias: str, item: object) -> str:
    if isinstance(item, str):
        item = item.encode()
    if not isinstance(item, bytes):
        raise invalid_argument(
            f'an element of the string input "{alias}" is {type(item).__name__}; must be bytes or str'
        )
    return pybase64.b64encode_as_string(item)


def decode_response(body: bytes, output_dtypes: Mapping[str, DType]) -> dict[str, np.ndarray]:
    """Read the body of the response to a columnar Predict request (client role).

    Args:
        body: JSON with `outputs`: the bare value of a single output, or an object of several. Plain strings need not be
            UTF-8.
        output_dtypes: the element types of all outputs of the signature, by alias.

    Returns:
        Arrays of these element types, by alias; strings as object arrays of bytes.

    Raises:
        StatusError: INVALID_ARGUMENT if the body is not such a response, or a value does not fit its element type.
    """
    try:
        document = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"the response is not valid JSON: {error}") from error
    if not isinstance(document, dict) or "outputs" not in document:
        raise invalid_argument('the response is not a JSON object with "outputs"')
    columns = document["outputs"]
    if len(output_dtypes) == 1:
        columns = dict.fromkeys(output_dtypes, columns)
    if not isinstance(columns, dict) or columns.keys() != output_dtypes.keys():
        names = ", ".join(sorted(columns)) if isinstance(columns, dict) else "one bare value"
        raise invalid_argument(
            f"the response has {names}; the signature's outputs are {', '.join(sorted(output_dtypes))}"
        )
    return {alias: _decode_column(alias, columns[alias], dtype) for alias, dtype in output_dtypes.items()}


def _decode_column(alias: str, value: JsonValue, dtype: DType) -> np.ndarray:
    is_integer = dtype.numpy.kind in "iu" and dtype.name != "uint64"
    try:
        array = decode_array(value, BY_NAME["int64"] if is_integer else dtype, alias)
    except (StatusError, OverflowError, UnicodeEncodeError) as error:
        reason = error.message if isinstance(error, StatusError) else error
        raise invalid_argument(f'output "{alias}" cannot be read as {dtype.name}: {reason}') from error
    converted = array.astype(dtype.numpy, copy=False)
    if is_integer and not np.array_equal(array, converted):
        raise invalid_argument(f'output "{alias}" cannot be read as {dtype.name}: an integer is out of range')
    return converted


@dataclass(frozen=True)
class PredictBody:
    """The body of a Predict request, parsed but not yet checked against a signature.

    Attributes:
        signature_name: empty if the body has none.
        document: the whole body. Its depth is unlimited, so don't print it.
    """

    signature_name: str
    document: dict[str, JsonValue] = field(repr=False, compare=False)


def decode_request(body: bytes, limits: ParseLimits = NO_LIMITS) -> PredictBody:
    """Parse the body of a Predict request as far as possible without its signature (server role).

    Raises:
        StatusError: INVALID_ARGUMENT if it is not JSON, not an object, or its `signature_name` is not a string.
    """
    document, signature_name = parse_document(body, limits)
    return PredictBody(signature_name, document)


def signature_not_found(name: str) -> StatusError:
    """Return the error of a JSON request for a signature that the model does not have."""
    return invalid_argument(f'Serving signature name: "{shown_name(name)}" not found in signature def')


def decode_inputs(
    document: dict[str, JsonValue], input_dtypes: Mapping[str, DType], signature_name: str
) -> tuple[dict[str, Tensor], bool]:
    """Decode the `instances` or `inputs` of a document to the inputs of a signature (server role).

    Args:
        document: from `decode_request`.
        input_dtypes: the element type of each input of the signature, by alias.
        signature_name: for the error message if the signature has no inputs.

    Returns:
        Tensors by alias (strings as object arrays of bytes), and whether the request is in row format, where the first
        axis of each array is the rows.

    Raises:
        StatusError: INVALID_ARGUMENT; UNIMPLEMENTED in columnar format for element types that JSON cannot represent.
    """
    from savedmodel_bakery.wire.tensors import Tensor  # not at the top: REST clients do without protobuf

    arrays, row_format = _decode_inputs(document, input_dtypes, signature_name)
    return {alias: Tensor(array, input_dtypes[alias]) for alias, array in arrays.items()}, row_format


def _decode_inputs(
    document: dict[str, JsonValue], dtypes: Mapping[str, DType], signature_name: str
) -> tuple[dict[str, np.ndarray], bool]:
    if not dtypes:
        raise invalid_argument(f"Failed to get input map for signature: {shown_name(signature_name)}")
    if "instances" in document and "inputs" in document:
        raise document_error(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if "inputs" in document:
        return _decode_columns(document["inputs"], dtypes), False
    if "instances" not in document:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    rows = document["instances"]
    if not isinstance(rows, list):
        raise document_error(document, "Expecting 'instances' to be an list/array")
    if not rows:
        raise document_error(document, "No values in 'instances' array")
    if _is_named_row(rows[0]):
        return _decode_named_rows(rows, dtypes), True
    return _decode_plain_rows(rows, dtypes), True


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
        """Return the shape and the elements of a row.

        Raises:
            StatusError: INVALID_ARGUMENT if its type, size or shape differs from those of the rows before it.
        """
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


def encode_response(outputs: Mapping[str, Tensor], *, row_format: bool) -> bytes:
    """Write the body of a Predict response (server role).

    Strings are written as they are, valid UTF-8 or not; those of an alias that ends in `_bytes` as base64.

    Args:
        outputs: tensors by alias; strings as object arrays of bytes.
        row_format: write `predictions`, row by row, instead of `outputs`, tensor by tensor.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that JSON cannot represent and, in row format, for outputs whose
            first axes differ in size or are missing.
    """
    text = _row_text(outputs) if row_format else _column_text(outputs)
    return text.encode("latin-1")


def response_size(outputs: Mapping[str, Tensor]) -> int:
    """Return an estimate, rather too high, of the bytes of memory that `encode_response` needs."""
    size = 0
    for array, dtype, _ in outputs.values():
        size += _ELEMENT_BYTES * array.size
        if dtype is STRING:
            size += _CONTENT_COPIES * sum(map(len, array.flat))
    return size


def _tensor_texts(alias: str, tensor: Tensor, *, rows: int | None, level: int) -> list[str]:
    """Write a tensor inside `level` lists and objects: whole if `rows` is None, else each row on one line."""
    shape = tensor.array.shape if rows is None else tensor.array.shape[1:]
    as_base64 = alias.endswith(BYTES_SUFFIX)
    texts = element_texts(tensor.array, tensor.dtype, as_base64=as_base64, level=level + len(shape))
    return nest(texts, shape, count=1 if rows is None else rows, level=level, one_line=rows is not None)


def _column_text(outputs: Mapping[str, Tensor]) -> str:
    level = 1 if len(outputs) == 1 else 2
    texts = {alias: _tensor_texts(alias, tensor, rows=None, level=level)[0] for alias, tensor in outputs.items()}
    value = texts.popitem()[1] if len(texts) == 1 else _object_text(texts, 1)
    return f'{{\n    "outputs": {value}\n}}'


def _object_text(texts: Mapping[str, str], level: int) -> str:
    inner = new_line(level + 1)
    members = [f"{quote_bytes(alias)}: {texts[alias]}" for alias in sorted(texts)]
    return "{" + inner + f",{inner}".join(members) + new_line(level) + "}"


def _row_text(outputs: Mapping[str, Tensor]) -> str:
    rows = _count_rows(outputs)
    single = len(outputs) == 1
    columns = {
        alias: _tensor_texts(alias, tensor, rows=rows, level=2 if single else 3) for alias, tensor in outputs.items()
    }
    if not rows:
        entries = "[]"
    elif single:
        [texts] = columns.values()
        entries = "[" + ", ".join(texts) + new_line(1) + "]"
    else:
        inner = new_line(2)
        objects = [_object_text(dict(zip(columns, row, strict=True)), 2) for row in zip(*columns.values(), strict=True)]
        entries = "[" + inner + f",{inner}".join(objects) + new_line(1) + "]"
    return f'{{\n    "predictions": {entries}\n}}'


def _count_rows(outputs: Mapping[str, Tensor]) -> int:
    rows: int | None = None
    for alias, (array, *_) in sorted(outputs.items()):
        if array.ndim == 0:
            raise invalid_argument(f"Tensor name: {alias} has no shape information ")
        if rows is not None and len(array) != rows:
            raise invalid_argument(f"Tensor name: {alias} has inconsistent batch size: {len(array)} expecting: {rows}")
        rows = len(array)
    return rows or 0
