"""JSON values become arrays, or errors with the texts of tensorflow_model_server."""

from __future__ import annotations

import json

import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME, DType
from savedmodel_bakery.wire.json.decode import parse_document
from savedmodel_bakery.wire.json.predict import decode_inputs
from savedmodel_bakery.wire.status import Code, StatusError

ONE = {"x": BY_NAME["float"]}


def decode(body: bytes | str, dtypes: dict[str, DType] | str = ONE) -> tuple[dict[str, np.ndarray], bool]:
    """The arrays of a request, and whether it is in row format; `dtypes` may be the type of a single input."""
    if isinstance(dtypes, str):
        dtypes = {"x": BY_NAME[dtypes]}
    document, signature_name = parse_document(body.encode() if isinstance(body, str) else body)
    inputs, row_format = decode_inputs(document, dtypes, signature_name)
    return {alias: tensor.array for alias, tensor in inputs.items()}, row_format


def error_message(body: bytes | str, dtypes: dict[str, DType] | str = ONE) -> str:
    """The message of the INVALID_ARGUMENT error for a request."""
    with pytest.raises(StatusError) as caught:
        decode(body, dtypes)
    assert Code.INVALID_ARGUMENT is caught.value.code
    return caught.value.message


VALUES = {
    "float": ("float", "[1, -2.5, 1e39, -1e39, 1e-50]", [1, -2.5, np.inf, -np.inf, 0]),
    "float-of-large-integers": ("float", "[16777217, 18446744073709551615]", [2**24, 2**64]),
    "double": ("double", "[3, 0.1, 1e39, Infinity, -Inf]", [3, 0.1, 1e39, np.inf, -np.inf]),
    "int32": ("int32", "[-2147483648, 2147483647]", [-(2**31), 2**31 - 1]),
    "int16-wraps": ("int16", "[40000]", [-25536]),
    "int8-wraps": ("int8", "[300, -128]", [44, -128]),
    "uint8-wraps": ("uint8", "[-1, 256]", [255, 0]),
    "int64": ("int64", "[-9223372036854775808, 9223372036854775807]", [-(2**63), 2**63 - 1]),
    "uint32": ("uint32", "[0, 4294967295]", [0, 2**32 - 1]),
    "uint64": ("uint64", "[0, 18446744073709551615]", [0, 2**64 - 1]),
    "bool": ("bool", "[true, false]", [True, False]),
    "string": ("string", '["é", {"b64": "//4="}, "\\u0000"]', ["é".encode(), b"\xff\xfe", b"\0"]),
    "scalar": ("float", "1.5", 1.5),
    "b64-scalar": ("string", '{"b64": " Y Q = = "}', b"a"),
    "b64-padded-with-points": ("string", '[{"b64": "YQ.."}]', [b"a"]),
    "b64-without-padding": ("string", '[{"b64": "YQ"}]', [b"a"]),
    "empty": ("int32", "[]", []),
    "empty-rows": ("float", "[[], []]", [[], []]),
    "empty-of-a-type-json-cannot-carry": ("half", "[]", []),
    "cube": ("int32", "[[[1], [2]], [[3], [4]]]", [[[1], [2]], [[3], [4]]]),
}


@pytest.mark.parametrize(("name", "text", "values"), list(VALUES.values()), ids=list(VALUES))
def test_values_become_an_array(name: str, text: str, values: object) -> None:
    """In columnar format the value is the array; as the only row it gets a first axis."""
    expected = np.array(values, BY_NAME[name].numpy)
    columns, row_format = decode(f'{{"inputs": {text}}}', name)
    assert row_format is False
    assert (expected.dtype, expected.shape) == (columns["x"].dtype, columns["x"].shape)
    np.testing.assert_array_equal(expected, columns["x"])
    rows, row_format = decode(f'{{"instances": [{text}]}}', name)
    assert row_format is True
    np.testing.assert_array_equal(expected[np.newaxis], rows["x"])


VALUE_ERRORS = {
    "bool-for-float": ("float", "[1.0, true]", "JSON Value: true Type: True is not of expected type: float"),
    "string-for-float": ("float", '["1.0"]', 'JSON Value: "1.0" Type: String is not of expected type: float'),
    "null-for-double": ("double", "[null]", "JSON Value: null Type: Null is not of expected type: double"),
    "b64-for-float": (
        "float",
        '[{"b64": "YQ=="}]',
        'JSON Value: {\n    "b64": "YQ=="\n} Type: Object is not of expected type: float',
    ),
    "float-for-int32": ("int32", "[1.0]", "JSON Value: 1.0 Type: Number is not of expected type: int32"),
    "bool-for-int32": ("int32", "[1, false]", "JSON Value: false Type: False is not of expected type: int32"),
    "large-for-int32": (
        "int32",
        "[2147483648]",
        "JSON Value: 2147483648 Type: Number is not of expected type: int32",
    ),
    "large-for-uint8": (
        "uint8",
        "[2147483648]",
        "JSON Value: 2147483648 Type: Number is not of expected type: uint8",
    ),
    "exponent-for-int64": (
        "int64",
        "[1e3]",
        "JSON Value: 1000.0 Type: Number is not of expected type: int64",
    ),
    "large-for-int64": (
        "int64",
        "[9223372036854775808]",
        "JSON Value: 9223372036854775808 Type: Number is not of expected type: int64",
    ),
    "negative-for-uint32": ("uint32", "[-1]", "JSON Value: -1 Type: Number is not of expected type: uint32"),
    "large-for-uint64": (
        "uint64",
        "[18446744073709551616]",
        "JSON Value: 18446744073709552000.0 Type: Number is not of expected type: uint64",
    ),
    "int-for-bool": ("bool", "[1]", "JSON Value: 1 Type: Number is not of expected type: bool"),
    "int-for-string": ("string", '["a", 1]', "JSON Value: 1 Type: Number is not of expected type: string"),
    "b64-alphabet": ("string", '[{"b64": "_w=="}]', "Unable to base64 decode"),
    "b64-twice": (
        "string",
        '[{"b64": "YQ==", "b64": "Yg=="}]',
        'JSON Value: {\n    "b64": "YQ==",\n    "b64": "Yg=="\n} not formatted correctly for base64 data',
    ),
    "b64-padding": ("string", '[{"b64": "YQ="}]', "Unable to base64 decode"),
    "b64-one-digit": ("string", '[{"b64": "Y"}]', "Unable to base64 decode"),
    "b64-two-keys": (
        "string",
        '[{"b64": "YQ==", "c": 1}]',
        'JSON Value: {\n    "b64": "YQ==",\n    "c": 1\n} not formatted correctly for base64 data',
    ),
    "size": ("float", "[[1], [2, 3]]", "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
    "too-deep": ("float", "[1, [2]]", "Encountered list at unexpected level: 1 expected < 1"),
    "too-shallow": (
        "float",
        "[[1.0], 2.0]",
        "JSON Value: 2.0 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
    ),
    "first-fault-counts": (
        "int8",
        '[[1, 2], ["a", 3], [4]]',
        'JSON Value: "a" Type: String is not of expected type: int8',
    ),
}


@pytest.mark.parametrize(("name", "text", "expected"), list(VALUE_ERRORS.values()), ids=list(VALUE_ERRORS))
def test_value_errors(name: str, text: str, expected: str) -> None:
    """In row format, the message has the index of the row too."""
    assert expected == error_message(f'{{"inputs": {text}}}', name)
    wrapped = f"Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: {expected}"
    first = '""' if name == "string" else "true" if name == "bool" else "0"
    if not isinstance(json.loads(text)[0], dict):
        first = f"[{first}]"
        assert wrapped == error_message(f'{{"instances": [{first}, {text}]}}', name)


@pytest.mark.parametrize("name", ["half", "bfloat16", "uint16", "complex64", "qint8"])
def test_types_that_json_cannot_represent(name: str) -> None:
    """UNIMPLEMENTED in columnar format; in row format INVALID_ARGUMENT, whose message quotes it."""
    reason = f"Conversion of JSON Value: 1 to type: {name}"
    with pytest.raises(StatusError) as caught:
        decode(b'{"inputs": [1]}', name)
    assert (Code.UNIMPLEMENTED, reason) == (caught.value.code, caught.value.message)
    expected = f"Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: {reason}"
    assert expected == error_message(b'{"instances": [1]}', name)
    object_error = f'JSON Value: {{\n    "b64": "YQ=="\n}} Type: Object is not of expected type: {name}'
    assert object_error == error_message(b'{"inputs": [{"b64": "YQ=="}]}', name)


@pytest.mark.parametrize("key", ["inputs", "instances"])
@pytest.mark.parametrize("levels", [255, 900])
def test_too_many_dimensions_are_rejected(key: str, levels: int) -> None:
    assert "tensor parsing error: x" == error_message(f'{{"{key}": ' + "[" * levels + "1" + "]" * levels + "}")
