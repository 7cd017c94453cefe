"""The columnar JSON of Predict as a client sees it: request bodies it writes, answers it reads.

Must not know HTTP. As tensorflow_model_server reads and writes it (its `util/json_tensor.cc`): numbers are
JSON numbers or the tokens NaN, Infinity and -Infinity, bytes are `{"b64": …}`, and only the signature tells
the element types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_READABLE = (
    "bool",
    "double",
    "float",
    "int16",
    "int32",
    "int64",
    "int8",
    "string",
    "uint32",
    "uint64",
    "uint8",
)

# Kinds of array that numpy finds in a list of JSON values, by the kind that the output is declared with.
_FOUND_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}


def encode_request(inputs: Mapping[str, np.ndarray], signature: str) -> bytes:
    """Write the body of a columnar Predict request.

    Args:
        inputs: alias to array, any shape; strings as `S`, `U` or object arrays of bytes and (UTF-8) str.
        signature: name of the signature to run.

    Raises:
        StatusError: UNIMPLEMENTED for element types that servers don't read from JSON (half, bfloat16,
            uint16, complex, …), INVALID_ARGUMENT for arrays that are no tensor at all.
    """
    columns = {alias: _encode_column(alias, array) for alias, array in inputs.items()}
    return json.dumps({"signature_name": signature, "inputs": columns}, separators=(",", ":")).encode()


def decode_answer(body: bytes, output_dtypes: Mapping[str, dtypes.DType]) -> dict[str, np.ndarray]:
    """Read the answer to a columnar Predict request.

    Args:
        body: JSON with `outputs`: the bare value of a single output, an object where there are several. Plain
            strings need not be UTF-8.
        output_dtypes: alias to element type of all outputs of the signature.

    Returns:
        Alias to array of the declared element type; strings become object arrays of bytes.

    Raises:
        StatusError: INVALID_ARGUMENT where the body is no such answer, or its values are not of those types.
    """
    try:
        document = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"the answer is not JSON: {error}") from error
    if not isinstance(document, dict) or "outputs" not in document:
        raise invalid_argument('the answer is no JSON object with "outputs"')
    columns = document["outputs"]
    if len(output_dtypes) == 1:
        columns = dict.fromkeys(output_dtypes, columns)
    if not isinstance(columns, dict) or columns.keys() != output_dtypes.keys():
        names = ", ".join(sorted(columns)) if isinstance(columns, dict) else "one bare value"
        raise invalid_argument(
            f"the answer has {names}; the signature's outputs are {', '.join(sorted(output_dtypes))}"
        )
    return {alias: _decode_column(alias, columns[alias], kind) for alias, kind in output_dtypes.items()}


def _encode_column(alias: str, array: np.ndarray) -> Any:
    kind = dtypes.of_array(array)
    if kind.name not in _READABLE:
        raise StatusError(
            Code.UNIMPLEMENTED,
            f'input "{alias}" is {kind.name}, which servers cannot read from JSON; they read {", ".join(_READABLE)}',
        )
    if kind is not dtypes.STRING:
        return array.tolist()
    spelled = np.empty(array.size, object)
    spelled[:] = [{"b64": _base64(alias, item)} for item in array.ravel().tolist()]
    return spelled.reshape(array.shape).tolist()


def _base64(alias: str, item: object) -> str:
    if isinstance(item, str):
        item = item.encode()
    if not isinstance(item, bytes):
        raise invalid_argument(
            f'an element of the string input "{alias}" is {type(item).__name__}; supported are bytes and str'
        )
    return pybase64.b64encode_as_string(item)


def _decode_column(alias: str, value: Any, kind: dtypes.DType) -> np.ndarray:
    try:
        return _decode_strings(value) if kind is dtypes.STRING else _decode_numbers(value, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid_argument(f'output "{alias}" does not hold values of {kind.name}: {error}') from error


def _decode_numbers(value: Any, kind: dtypes.DType) -> np.ndarray:
    # Integers on both sides of 2**63 would meet as float64, and lose their last digits.
    found = _exact_integers(value) if kind.name == "uint64" else np.array(value)
    if found.size == 0:
        return np.zeros(found.shape, kind.numpy)
    if found.dtype.kind not in _FOUND_KINDS.get(kind.numpy.kind, ""):
        raise TypeError(f"found {found.dtype}")
    with np.errstate(over="ignore"):
        values = found.astype(kind.numpy)
    if kind.numpy.kind in "iu" and not np.array_equal(values, found):
        raise OverflowError("an integer is out of range")
    return values


def _exact_integers(value: Any) -> np.ndarray:
    items = np.array(value, object)
    if not all(type(item) is int for item in items.flat):
        raise TypeError("found something that is no integer")
    return items.astype(np.uint64)


def _decode_strings(value: Any) -> np.ndarray:
    items = np.array(value, object)
    values = np.empty(items.size, object)
    values[:] = [_as_bytes(item) for item in items.flat]
    return values.reshape(items.shape)


def _as_bytes(item: object) -> bytes:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogateescape")
    if isinstance(item, dict) and item.keys() == {"b64"} and isinstance(item["b64"], str):
        return pybase64.b64decode(item["b64"], validate=True)
    raise TypeError(f"found {type(item).__name__}")
