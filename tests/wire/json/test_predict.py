"""Bodies of REST Predict, in both roles."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME, STRING, DType, of_array
from savedmodel_bakery.wire.json.decode import parse_document
from savedmodel_bakery.wire.json.predict import decode_inputs, encode_request
from savedmodel_bakery.wire.json.predict_response import decode_response, encode_response
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor

ONE = {"x": BY_NAME["float"]}
TWO = {"b": BY_NAME["int32"], "a": BY_NAME["float"]}


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


def encode(outputs: dict[str, tuple[str, object]], *, row_format: bool) -> bytes:
    """The response body for outputs that are given as the name of the element type, and values."""
    tensors = {
        alias: Tensor(np.array(value, BY_NAME[name].numpy), BY_NAME[name]) for alias, (name, value) in outputs.items()
    }
    return encode_response(tensors, row_format=row_format)


def assert_same(expected: np.ndarray, array: np.ndarray) -> None:
    assert (expected.dtype, expected.shape) == (array.dtype, array.shape)
    assert expected.tobytes() == array.tobytes() or np.isnan(expected).any()
    np.testing.assert_array_equal(expected, array)


def strings(*items: object) -> np.ndarray:
    """An object array of the items."""
    return np.array([*items, None], object)[:-1]


# Each row is written and read in both roles: the array, and its JSON as the client writes it.
NUMBERS = [
    pytest.param(np.array([1.0, -0.0], np.float32), "[1.0,-0.0]", id="float"),
    pytest.param(np.array([0.1, 1e300]), "[0.1,1e+300]", id="double"),
    pytest.param(np.array([np.nan, np.inf, -np.inf], np.float32), "[NaN,Infinity,-Infinity]", id="non-finite"),
    pytest.param(np.array([-128, 127], np.int8), "[-128,127]", id="int8"),
    pytest.param(np.array([0, 255], np.uint8), "[0,255]", id="uint8"),
    pytest.param(np.array([[-32768], [32767]], np.int16), "[[-32768],[32767]]", id="int16"),
    pytest.param(np.array(7, np.int32), "7", id="int32 scalar"),
    pytest.param(np.array([-(2**63), 2**63 - 1]), f"[{-(2**63)},{2**63 - 1}]", id="int64"),
    pytest.param(np.array([2**32 - 1], np.uint32), f"[{2**32 - 1}]", id="uint32"),
    pytest.param(np.array([1, 2**64 - 1], np.uint64), f"[1,{2**64 - 1}]", id="uint64"),
    pytest.param(np.array([True, False]), "[true,false]", id="bool"),
    pytest.param(np.zeros((2, 0), np.float32), "[[],[]]", id="no elements"),
]


@pytest.mark.parametrize(("array", "value"), NUMBERS)
def test_numbers_are_written_as_json_numbers_in_their_shape(array: np.ndarray, value: str) -> None:
    body = encode_request({"x": array}, "s")
    assert f'{{"signature_name":"s","inputs":{{"x":{value}}}}}'.encode() == body
    assert_same(array, decode(body, {"x": of_array(array)})[0]["x"])


@pytest.mark.parametrize(("array", "value"), NUMBERS)
def test_numbers_are_read_as_the_declared_type(array: np.ndarray, value: str) -> None:
    dtype = of_array(array)
    written = encode_response({"y": Tensor(array, dtype)}, row_format=False)
    for body in (f'{{"outputs": {value}}}'.encode(), written):
        decoded = decode_response(body, {"y": dtype})["y"]
        assert_same(array, decoded)
        assert decoded.flags.writeable


@pytest.mark.parametrize(
    ("array", "value"),
    [
        pytest.param(strings(b"\xff\x00"), [{"b64": "/wA="}], id="bytes with zeros"),
        pytest.param(strings("é"), [{"b64": "w6k="}], id="str is UTF-8"),
        pytest.param(np.array([["a"], ["b"]]), [[{"b64": "YQ=="}], [{"b64": "Yg=="}]], id="numpy U, matrix"),
        pytest.param(np.array(b"a"), {"b64": "YQ=="}, id="numpy S, scalar"),
        pytest.param(strings(), [], id="none"),
    ],
)
def test_strings_are_written_as_base64(array: np.ndarray, value: object) -> None:
    expected = {"signature_name": "serving_default", "inputs": {"x": value}}
    assert expected == json.loads(encode_request({"x": array}, "serving_default"))


def test_all_inputs_are_written_under_their_names() -> None:
    body = encode_request({"a": np.array([1]), "b": np.array(True)}, "sum")
    assert {"signature_name": "sum", "inputs": {"a": [1], "b": True}} == json.loads(body)


@pytest.mark.parametrize(
    "dtype",
    [np.float16, ml_dtypes.bfloat16, np.uint16, np.complex64, np.complex128, ml_dtypes.int4],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_types_that_servers_do_not_read_from_json_are_rejected(dtype: type) -> None:
    array = np.zeros(1, dtype)
    with pytest.raises(StatusError) as caught:
        encode_request({"x": array}, "s")
    expected = (
        f'input "x" is {of_array(array).name}, which servers do not read from JSON; they read '
        "bool, double, float, int16, int32, int64, int8, string, uint32, uint64, uint8"
    )
    assert (Code.UNIMPLEMENTED, expected) == (caught.value.code, caught.value.message)


def test_an_element_that_is_not_a_string_is_rejected() -> None:
    with pytest.raises(StatusError) as caught:
        encode_request({"x": strings(b"a", None)}, "s")
    assert 'an element of the string input "x" is NoneType; must be bytes or str' == caught.value.message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b'["a", "\xc3\xa9"]', strings(b"a", "é".encode()), id="plain"),
        pytest.param(b'["\xff\x80"]', strings(b"\xff\x80"), id="invalid UTF-8"),
        pytest.param(b'[{"b64": "/wA="}]', strings(b"\xff\x00"), id="base64"),
        pytest.param(b'["\\u0000\\n"]', strings(b"\x00\n"), id="escapes"),
        pytest.param(b'[["a"], ["bc"]]', np.array([[b"a"], [b"bc"]], object), id="matrix"),
        pytest.param(b'{"b64": "YQ=="}', np.array(b"a", object), id="base64 scalar"),
        pytest.param(b"[]", strings(), id="none"),
    ],
)
def test_strings_are_read_as_bytes(value: bytes, expected: np.ndarray) -> None:
    read = decode_response(b'{"outputs": ' + value + b"}", {"y": STRING})["y"]
    assert np.dtype(object) == read.dtype
    assert expected.tolist() == read.tolist()


def test_several_outputs_are_an_object() -> None:
    dtypes = {"n": BY_NAME["int32"], "s": STRING}
    read = decode_response(b'{"outputs": {"s": ["a"], "n": [1, 2]}}', dtypes)
    assert {"n": [1, 2], "s": [b"a"]} == {alias: array.tolist() for alias, array in read.items()}


def test_a_float_beyond_its_range_becomes_infinite() -> None:
    assert [np.inf] == decode_response(b'{"outputs": [1e39]}', {"y": BY_NAME["float"]})["y"].tolist()


@pytest.mark.parametrize(
    ("body", "dtype", "message"),
    [
        pytest.param(b"", "float", "the response is not valid JSON: ", id="empty"),
        pytest.param(b"[" * 500_000, "float", "the response is not valid JSON: ", id="deep"),
        pytest.param(b"[1]", "float", "the response is not a JSON object", id="list"),
        pytest.param(b'{"predictions": [1]}', "float", 'the response has no "outputs"', id="row format"),
        pytest.param(b'{"outputs": ["1"]}', "float", 'output "y" cannot be read as float: ', id="text"),
        pytest.param(b'{"outputs": [null]}', "float", 'output "y" cannot be read as float: ', id="null"),
        pytest.param(b'{"outputs": [[1], 2]}', "float", 'output "y" cannot be read as ', id="ragged"),
        pytest.param(b'{"outputs": [1.5]}', "int32", 'output "y" cannot be read as int32: ', id="fraction"),
        pytest.param(b'{"outputs": [300]}', "int8", 'output "y" cannot be read as int8: ', id="range"),
        pytest.param(b'{"outputs": [-1]}', "uint64", 'output "y" cannot be read as ', id="negative"),
        pytest.param(b'{"outputs": [1]}', "bool", 'output "y" cannot be read as bool: ', id="number"),
        pytest.param(b'{"outputs": [1]}', "complex64", 'output "y" cannot be read as ', id="complex"),
        pytest.param(b'{"outputs": [1]}', "string", 'output "y" cannot be read as string: ', id="1"),
        pytest.param(b'{"outputs": [{"b64": "?"}]}', "string", 'output "y" cannot be read as ', id="base64"),
        pytest.param(b'{"outputs": ["\\ud800"]}', "string", 'output "y" cannot be read as ', id="lone surrogate"),
    ],
)
def test_invalid_responses_are_rejected(body: bytes, dtype: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_response(body, {"y": BY_NAME[dtype]})
    assert Code.INVALID_ARGUMENT is caught.value.code
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("outputs", "names"), [('{"a": 1, "c": 2}', "a, c"), ("[1]", "one bare value")], ids=["others", "bare"]
)
def test_outputs_that_differ_from_the_signature_are_rejected(outputs: str, names: str) -> None:
    dtypes = {"a": BY_NAME["int32"], "b": BY_NAME["int32"]}
    with pytest.raises(StatusError) as caught:
        decode_response(f'{{"outputs": {outputs}}}'.encode(), dtypes)
    assert f"the response has {names}; the signature's outputs are a, b" == caught.value.message


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        pytest.param("", b'{"instances": [1]}', id="absent"),
        pytest.param("", b'{"signature_name": ""}', id="empty"),
        pytest.param("top_k", b'{"inputs": {}, "signature_name": "top_k"} rest', id="present"),
    ],
)
def test_the_signature_name_is_read(expected: str, body: bytes) -> None:
    assert expected == parse_document(body)[1]


DOCUMENT_ERRORS = {
    "no-json": (b"{", "JSON Parse error: Missing a name for object member. at offset: 1"),
    "list": (b"[1]", "JSON Value: [1] Is not object"),
    "null": (b"null", "JSON Value: null Is not object"),
    "signature-number": (
        b'{"signature_name": 1}',
        'JSON Value: {\n    "signature_name": 1\n} not formatted correctly.'
        " 'signature_name' key must be a string value.",
    ),
    "neither": (b"{}", "Missing 'inputs' or 'instances' key"),
    "both": (
        b'{"inputs": 1, "instances": []}',
        'JSON Value: {\n    "inputs": 1,\n    "instances": []\n} Not formatted correctly'
        " expecting only one of 'inputs' or 'instances' keys to exist ",
    ),
    "instances-number": (
        b'{"instances": 1.0}',
        "JSON Value: {\n    \"instances\": 1.0\n} Expecting 'instances' to be an list/array",
    ),
    "instances-empty": (
        b'{"instances": []}',
        "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array",
    ),
}


@pytest.mark.parametrize(("body", "expected"), list(DOCUMENT_ERRORS.values()), ids=list(DOCUMENT_ERRORS))
def test_document_errors(body: bytes, expected: str) -> None:
    assert expected == error_message(body)


def test_named_rows_and_columns_give_the_same_arrays() -> None:
    rows, _ = decode(b'{"instances": [{"a": [1], "b": 2}, {"b": 3, "a": [4.5], "a": [0]}]}', TWO)
    columns, _ = decode(b'{"inputs": {"a": [[1], [4.5]], "b": [2, 3], "other": null}}', TWO)
    for arrays in (rows, columns):
        assert {"a": [[1.0], [4.5]], "b": [2, 3]} == {alias: array.tolist() for alias, array in arrays.items()}


def test_a_name_ends_at_a_null_character() -> None:
    assert [1.0] == decode(b'{"instances": [{"x\\u0000y": 1}]}')[0]["x"].tolist()


def test_rows_of_one_input_may_be_named() -> None:
    assert [1.0, 2.0] == decode(b'{"instances": [{"x": 1}, {"x": 2}]}')[0]["x"].tolist()


FAILED = "Failed to process element: "
ROW_ERRORS = {
    "plain-for-two": (
        TWO,
        "[1]",
        "instances is a plain list, but expecting list of objects as multiple input tensors required as per"
        " tensorinfo_map",
    ),
    "list-among-objects": (ONE, '[{"x": 1}, [2]]', "Expecting object but got list at item 1 of input list"),
    "b64-among-objects": (
        ONE,
        '[{"x": 1}, {"b64": "YQ"}]',
        "Expecting object but got list at item 1 of input list",
    ),
    "object-among-values": (
        ONE,
        '[1, {"x": 2}]',
        "Expecting value/list but got object at item 1 of input list",
    ),
    "size": (
        ONE,
        "[[1, 2], [3]]",
        FAILED + "1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 2 but got: 1",
    ),
    "shape": (
        ONE,
        "[[1, 2], [[3, 4]]]",
        FAILED + "1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [2] but got: [1,2]",
    ),
    "scalar-and-list": (
        ONE,
        "[1.0, [2.0]]",
        FAILED + "1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [] but got: [1]",
    ),
    "key-too-many": (
        ONE,
        '[{"x": 1.0, "z": 2}]',
        FAILED + "0 key: z of 'instances' list. Error: INVALID_ARGUMENT: JSON object: does not have named input: z",
    ),
    "long-key": (
        ONE,
        '[{"' + 300 * "z" + '": 2}]',
        f"{FAILED}0 key: {259 * 'z'} of 'instances' list. Error: INVALID_ARGUMENT: JSON object: does not have named"
        f" input: {259 * 'z'}",
    ),
    "repeated-key": (
        ONE,
        '[{"x": 1, "x": "a"}]',
        FAILED + "0 key: x of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"a\" Type: String is not"
        " of expected type: float",
    ),
    "repeated-key-of-another-size": (
        ONE,
        '[{"x": 1, "x": [2, 3]}]',
        FAILED + "0 key: x of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2",
    ),
    "repeated-key-in-a-value": (
        ONE,
        '[{"x": {"a": 1, "a": 2}}]',
        FAILED + '0 key: x of \'instances\' list. Error: INVALID_ARGUMENT: JSON Value: {\n    "a": 1,\n    "a": 2\n}'
        " Type: Object is not of expected type: float",
    ),
    "b64-for-two": (
        TWO,
        '[{"b64": "YQ=="}]',
        FAILED + '0 of \'instances\' list. Error: INVALID_ARGUMENT: JSON Value: {\n    "b64": "YQ=="\n}'
        " Type: Object is not of expected type: float",
    ),
    "key-too-few": (
        TWO,
        '[{"a": 1}]',
        FAILED + "0 of 'instances' list. JSON object: {\n    \"a\": 1\n} keys must be equal to: a,b",
    ),
    "value-in-named-row": (
        TWO,
        '[{"a": 1, "b": 2}, {"a": 1, "b": 2.5}]',
        FAILED + "1 key: b of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: 2.5 Type: Number is not"
        " of expected type: int32",
    ),
}


@pytest.mark.parametrize(("dtypes", "rows", "expected"), list(ROW_ERRORS.values()), ids=list(ROW_ERRORS))
def test_row_errors(dtypes: dict[str, DType], rows: str, expected: str) -> None:
    assert expected == error_message(f'{{"instances": {rows}}}', dtypes)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param('{"inputs": {"a": 1}}', "Missing named input: b in 'inputs' object.", id="missing"),
        pytest.param(
            '{"inputs": [1]}',
            "inputs is a plain value/list, but expecting an object as multiple input tensors required as per"
            " tensorinfo_map",
            id="plain-for-two",
        ),
    ],
)
def test_column_errors(body: str, expected: str) -> None:
    assert expected == error_message(body, TWO)


def test_a_signature_without_inputs_is_rejected() -> None:
    body = b'{"signature_name": "s", "inputs": {}}'
    assert "Failed to get input map for signature: s" == error_message(body, {})


ENCODE_ERRORS = {
    "scalar": ({"y": ("float", 1)}, True, "Tensor name: y has no shape information "),
    "sizes": (
        {"q": ("float", [1, 2, 3]), "p": ("float", [1, 2])},
        True,
        "Tensor name: q has inconsistent batch size: 3 expecting: 2",
    ),
    "half": ({"y": ("half", [1])}, False, "Failed to write JSON value for tensor type: half"),
    "uint16": (
        {"a": ("float", [1]), "y": ("uint16", [1])},
        True,
        "Failed to write JSON value for tensor type: uint16",
    ),
}


@pytest.mark.parametrize(("outputs", "row_format", "expected"), list(ENCODE_ERRORS.values()), ids=list(ENCODE_ERRORS))
def test_outputs_that_json_cannot_represent_are_rejected(
    outputs: dict[str, tuple[str, object]], row_format: bool, expected: str
) -> None:
    with pytest.raises(StatusError) as caught:
        encode(outputs, row_format=row_format)
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)
