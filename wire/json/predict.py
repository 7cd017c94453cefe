"""Bodies of REST Predict: a JSON document to input arrays, output arrays to the answer.

Both formats of the protocol are read: `instances`, one entry a row, and `inputs`, one entry a tensor; the
answer comes in the format of the request. Whether model and signature exist is the server's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.json.decode import decode_array, decode_regular, is_base64, pack, walk
from savedmodel_bakery.wire.json.encode import element_texts, line, nest, quote_bytes
from savedmodel_bakery.wire.json.text import JsonValue, members_of, parse_json, show_value
from savedmodel_bakery.wire.status import StatusError, invalid_argument

BYTES_SUFFIX = "_bytes"


@dataclass(frozen=True)
class PredictBody:
    """A Predict request that is well formed, whatever model it is for.

    Attributes:
        signature_name: empty where the body names none.
        document: the whole body; its depth is unbounded, so it is not for printing.
    """

    signature_name: str
    document: dict[str, JsonValue] = field(repr=False, compare=False)


def parse_predict_body(body: bytes) -> PredictBody:
    """Read a body as far as it can be judged without the model.

    Raises:
        StatusError: INVALID_ARGUMENT where it is no JSON, no object, or its `signature_name` no string.
    """
    document, signature_name = parse_document(body)
    return PredictBody(signature_name, document)


def parse_document(body: bytes) -> tuple[dict[str, JsonValue], str]:
    """Read what all bodies share: an object with an optional `signature_name`.

    Raises:
        StatusError: as `parse_predict_body`.
    """
    document = parse_json(body)
    if not isinstance(document, dict):
        raise invalid_argument(f"JSON Value: {show_value(document)} Is not object")
    signature_name = document.get("signature_name", "")
    if not isinstance(signature_name, str):
        raise document_error(document, "not formatted correctly. 'signature_name' key must be a string value.")
    return document, signature_name


def document_error(document: dict[str, JsonValue], why: str) -> StatusError:
    """The refusal of a whole document, which shows its beginning."""
    return invalid_argument(f"JSON Value: {show_value(document)} {why}")


def decode_inputs(
    document: dict[str, JsonValue], infos: Mapping[str, DType], signature_name: str
) -> tuple[dict[str, np.ndarray], bool]:
    """Turn a document's `instances` or `inputs` into the arrays of a signature.

    Args:
        document: as `parse_predict_body` gave it.
        infos: element type of each input of the signature, by alias.
        signature_name: for the refusal of a signature without inputs.

    Returns:
        Arrays by alias (strings as object arrays of bytes), and whether the request was in row format, where
        all arrays have the rows as first axis.

    Raises:
        StatusError: INVALID_ARGUMENT; in columnar format UNIMPLEMENTED for element types JSON can't carry.
    """
    if not infos:
        raise invalid_argument(f"Failed to get input map for signature: {signature_name}")
    if "instances" in document and "inputs" in document:
        raise document_error(
            document, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    if "inputs" in document:
        return _decode_columns(document["inputs"], infos), False
    if "instances" not in document:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    rows = document["instances"]
    if not isinstance(rows, list):
        raise document_error(document, "Expecting 'instances' to be an list/array")
    if not rows:
        raise document_error(document, "No values in 'instances' array")
    if _is_named_row(rows[0]):
        return _decode_named_rows(rows, infos), True
    return _decode_plain_rows(rows, infos), True


def _decode_columns(value: JsonValue, infos: Mapping[str, DType]) -> dict[str, np.ndarray]:
    if not isinstance(value, dict) or is_base64(value):
        if len(infos) != 1:
            raise invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required"
                " as per tensorinfo_map"
            )
        return {alias: decode_array(value, dtype, alias) for alias, dtype in infos.items()}
    arrays = {}
    for alias, dtype in infos.items():
        if alias not in value:
            raise invalid_argument(f"Missing named input: {alias} in 'inputs' object.")
        arrays[alias] = decode_array(value[alias], dtype, alias)
    return arrays


def _is_named_row(row: JsonValue) -> bool:
    return isinstance(row, dict) and not is_base64(row)


class _Column:
    """The rows of one input, taken one by one."""

    def __init__(self, alias: str, dtype: DType) -> None:
        self.alias = alias
        self.dtype = dtype
        self.count = 0
        self.shape: list[int] = []
        self.leaves: list[JsonValue] = []

    def add(self, row: JsonValue) -> None:
        self.shape, leaves = self.check(row)
        self.count += 1
        self.leaves += leaves

    def check(self, row: JsonValue) -> tuple[list[int], list[JsonValue]]:
        """Shape and values of a row like those before it.

        Raises:
            StatusError: INVALID_ARGUMENT where it is of another type, size or shape.
        """
        shape, leaves = walk(row, self.dtype)
        if self.count and len(leaves) != (size := len(self.leaves) // self.count):
            raise invalid_argument(f"Expecting tensor size: {size} but got: {len(leaves)}")
        if self.count and shape != self.shape:
            raise invalid_argument(f"Expecting shape {_shape_text(self.shape)} but got: {_shape_text(shape)}")
        return shape, leaves

    def array(self) -> np.ndarray:
        return pack(self.leaves, [self.count, *self.shape], self.dtype, self.alias)


def _shape_text(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _decode_plain_rows(rows: list[JsonValue], infos: Mapping[str, DType]) -> dict[str, np.ndarray]:
    if len(infos) != 1 and not isinstance(rows[0], dict):
        raise invalid_argument(
            "instances is a plain list, but expecting list of objects as multiple input tensors required"
            " as per tensorinfo_map"
        )
    alias, dtype = min(infos.items())  # of several where rows are base64 objects: the others are missing then
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


def _decode_named_rows(rows: list[JsonValue], infos: Mapping[str, DType]) -> dict[str, np.ndarray]:
    regular = _decode_regular_named_rows(rows, infos)
    if regular is not None:
        return regular
    columns = {alias: _Column(alias, dtype) for alias, dtype in infos.items()}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or is_base64(row):
            raise invalid_argument(f"Expecting object but got list at item {index} of input list")
        for full_name, value in members_of(row):
            name = full_name.partition("\0")[0]  # upstream reads it as a string of C
            try:
                if name not in columns:
                    raise invalid_argument(f"JSON object: does not have named input: {name}")
                if columns[name].count > index:
                    columns[name].check(value)
                else:
                    columns[name].add(value)
            except StatusError as error:
                raise _row_error(index, f" key: {name}", error) from None
        if any(column.count <= index for column in columns.values()):
            raise invalid_argument(
                f"Failed to process element: {index} of 'instances' list. JSON object: {show_value(row)}"
                f" keys must be equal to: {','.join(sorted(infos))}"
            )
    return {alias: column.array() for alias, column in columns.items()}


def _decode_regular_named_rows(rows: list[JsonValue], infos: Mapping[str, DType]) -> dict[str, np.ndarray] | None:
    keys = infos.keys()
    named = [row for row in rows if isinstance(row, dict) and row.keys() == keys and not is_base64(row)]
    if len(named) != len(rows) or any(len(members_of(row)) != len(keys) for row in named):
        return None
    arrays = {}
    for alias, dtype in infos.items():
        regular = decode_regular([row[alias] for row in named], dtype, alias)
        if regular is None:
            return None
        arrays[alias] = regular
    return arrays


def encode_outputs(outputs: Mapping[str, np.ndarray], dtypes: Mapping[str, DType], row_format: bool) -> bytes:
    """Write the answer to a Predict request.

    Strings are written as they are, UTF-8 or not, and those of an alias that ends in `_bytes` as base64.

    Args:
        outputs: arrays by alias; strings as object arrays of bytes.
        dtypes: element type of each output, by alias.
        row_format: answer `predictions`, row by row, instead of `outputs`, tensor by tensor.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that JSON can't carry and, in row format, for outputs
            without a first axis of one common size.
    """
    text = _row_text(outputs, dtypes) if row_format else _column_text(outputs, dtypes)
    return text.encode("latin-1")


def _tensor_texts(alias: str, array: np.ndarray, dtype: DType, *, rows: int | None, level: int) -> list[str]:
    """Print a tensor, whole (`rows` None) or row by row on a line each, inside of `level` lists and objects."""
    shape = array.shape if rows is None else array.shape[1:]
    as_base64 = alias.endswith(BYTES_SUFFIX)
    texts = element_texts(array, dtype, as_base64=as_base64, level=level + len(shape))
    return nest(texts, shape, count=1 if rows is None else rows, level=level, one_line=rows is not None)


def _column_text(outputs: Mapping[str, np.ndarray], dtypes: Mapping[str, DType]) -> str:
    level = 1 if len(outputs) == 1 else 2
    texts = {
        alias: _tensor_texts(alias, array, dtypes[alias], rows=None, level=level)[0] for alias, array in outputs.items()
    }
    value = texts.popitem()[1] if len(texts) == 1 else _object_text(texts, 1)
    return f'{{\n    "outputs": {value}\n}}'


def _object_text(texts: Mapping[str, str], level: int) -> str:
    inner = line(level + 1)
    members = [f"{quote_bytes(alias)}: {texts[alias]}" for alias in sorted(texts)]
    return "{" + inner + f",{inner}".join(members) + line(level) + "}"


def _row_text(outputs: Mapping[str, np.ndarray], dtypes: Mapping[str, DType]) -> str:
    rows = _count_rows(outputs)
    single = len(outputs) == 1
    columns = {
        alias: _tensor_texts(alias, array, dtypes[alias], rows=rows, level=2 if single else 3)
        for alias, array in outputs.items()
    }
    if not rows:
        entries = "[]"
    elif single:
        entries = "[" + ", ".join(*columns.values()) + line(1) + "]"
    else:
        inner = line(2)
        objects = [_object_text(dict(zip(columns, row, strict=True)), 2) for row in zip(*columns.values(), strict=True)]
        entries = "[" + inner + f",{inner}".join(objects) + line(1) + "]"
    return f'{{\n    "predictions": {entries}\n}}'


def _count_rows(outputs: Mapping[str, np.ndarray]) -> int:
    rows: int | None = None
    for alias, array in sorted(outputs.items()):
        if array.ndim == 0:
            raise invalid_argument(f"Tensor name: {alias} has no shape information ")
        if rows is not None and len(array) != rows:
            raise invalid_argument(f"Tensor name: {alias} has inconsistent batch size: {len(array)} expecting: {rows}")
        rows = len(array)
    return rows or 0
