"""REST Predict bodies: documents to arrays, their refusals, and arrays to the text of the answer."""

from __future__ import annotations

import json

import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME, DType
from savedmodel_bakery.wire.json.predict import decode_inputs, encode_outputs, parse_predict_body
from savedmodel_bakery.wire.status import Code, StatusError

ONE = {"x": BY_NAME["float"]}
TWO = {"b": BY_NAME["int32"], "a": BY_NAME["float"]}


def decode(body: bytes | str, infos: dict[str, DType] | str = ONE) -> tuple[dict[str, np.ndarray], bool]:
    if isinstance(infos, str):
        infos = {"x": BY_NAME[infos]}
    parsed = parse_predict_body(body.encode() if isinstance(body, str) else body)
    return decode_inputs(parsed.document, infos, parsed.signature_name)


def refusal(body: bytes | str, infos: dict[str, DType] | str = ONE) -> str:
    with pytest.raises(StatusError) as refused:
        decode(body, infos)
    assert Code.INVALID_ARGUMENT == refused.value.code
    return refused.value.message


def encode(outputs: dict[str, tuple[str, object]], *, row_format: bool) -> bytes:
    arrays = {alias: np.array(value, BY_NAME[name].numpy) for alias, (name, value) in outputs.items()}
    return encode_outputs(arrays, {alias: BY_NAME[name] for alias, (name, _) in outputs.items()}, row_format)


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        pytest.param("", b'{"instances": [1]}', id="absent"),
        pytest.param("", b'{"signature_name": ""}', id="empty"),
        pytest.param("top_k", b'{"inputs": {}, "signature_name": "top_k"} rest', id="given"),
    ],
)
def test_signature_name_is_read(expected: str, body: bytes) -> None:
    assert expected == parse_predict_body(body).signature_name


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
def test_document_error(body: bytes, expected: str) -> None:
    assert expected == refusal(body)


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
    """Columns give the value itself; the same value as the only row gets a first axis."""
    expected = np.array(values, BY_NAME[name].numpy)
    columns, is_row = decode(f'{{"inputs": {text}}}', name)
    assert is_row is False
    assert (expected.dtype, expected.shape) == (columns["x"].dtype, columns["x"].shape)
    np.testing.assert_array_equal(expected, columns["x"])
    rows, is_row = decode(f'{{"instances": [{text}]}}', name)
    assert is_row is True
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
        "JSON Value: 18446744073709553000.0 Type: Number is not of expected type: uint64",
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
def test_value_error(name: str, text: str, expected: str) -> None:
    """Columns give the reason bare, rows name the element."""
    assert expected == refusal(f'{{"inputs": {text}}}', name)
    wrapped = f"Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: {expected}"
    first = '""' if name == "string" else "true" if name == "bool" else "0"
    if not isinstance(json.loads(text)[0], dict):
        first = f"[{first}]"
        assert wrapped == refusal(f'{{"instances": [{first}, {text}]}}', name)


@pytest.mark.parametrize("name", ["half", "bfloat16", "uint16", "complex64", "qint8"])
def test_type_that_json_cannot_carry(name: str) -> None:
    """Columns refuse it as UNIMPLEMENTED, rows as INVALID_ARGUMENT that quotes it."""
    why = f"Conversion of JSON Value: 1 to type: {name}"
    with pytest.raises(StatusError) as refused:
        decode(b'{"inputs": [1]}', name)
    assert (Code.UNIMPLEMENTED, why) == (refused.value.code, refused.value.message)
    expected = f"Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: {why}"
    assert expected == refusal(b'{"instances": [1]}', name)
    of_object = f'JSON Value: {{\n    "b64": "YQ=="\n}} Type: Object is not of expected type: {name}'
    assert of_object == refusal(b'{"inputs": [{"b64": "YQ=="}]}', name)


def test_named_rows_and_columns_give_the_same_arrays() -> None:
    rows, _ = decode(b'{"instances": [{"a": [1], "b": 2}, {"b": 3, "a": [4.5], "a": [0]}]}', TWO)
    columns, _ = decode(b'{"inputs": {"a": [[1], [4.5]], "b": [2, 3], "other": null}}', TWO)
    for arrays in (rows, columns):
        assert {"a": [[1.0], [4.5]], "b": [2, 3]} == {alias: array.tolist() for alias, array in arrays.items()}


def test_a_name_ends_at_a_null_character() -> None:
    assert [1.0] == decode(b'{"instances": [{"x\\u0000y": 1}]}')[0]["x"].tolist()


def test_row_of_one_input_may_be_named() -> None:
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


@pytest.mark.parametrize(("infos", "rows", "expected"), list(ROW_ERRORS.values()), ids=list(ROW_ERRORS))
def test_row_error(infos: dict[str, DType], rows: str, expected: str) -> None:
    assert expected == refusal(f'{{"instances": {rows}}}', infos)


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
def test_column_error(body: str, expected: str) -> None:
    assert expected == refusal(body, TWO)


def test_signature_without_inputs_is_refused() -> None:
    body = b'{"signature_name": "s", "inputs": {}}'
    assert "Failed to get input map for signature: s" == refusal(body, {})


@pytest.mark.parametrize("key", ["inputs", "instances"])
@pytest.mark.parametrize("levels", [255, 10_000, 200_000])
def test_too_many_dimensions_are_refused(key: str, levels: int) -> None:
    assert "tensor parsing error: x" == refusal(f'{{"{key}": ' + "[" * levels + "1" + "]" * levels + "}")


SPECIALS = [np.nan, np.inf, -np.inf, -0.0, 0.1, 1 / 3, 9e6, 999999, 1e-45, 3.4028235e38, 123456.7, 1e-5]
PRINTED = "NaN Infinity -Infinity -0.0 0.1 0.333333343 9e+06 999999.0 0.0 3.40282347e+38 123456.703 1e-05"
DOUBLES = [1 / 3, 5e-324, -1e-310, 1.7976931348623157e308, 123456.7, 1e22, 2.0]
PRINTED_DOUBLES = "0.33333333333333331 0.0 -0.0 1.7976931348623157e+308 123456.7 1e+22 2.0"
ROWS = {
    "float": ("float", SPECIALS, PRINTED),
    "double": ("double", DOUBLES, PRINTED_DOUBLES),
    "int8": ("int8", [-128, 127], "-128 127"),
    "int64": ("int64", [-(2**63), 2**63 - 1], "-9223372036854775808 9223372036854775807"),
    "uint64": ("uint64", [2**64 - 1], "18446744073709551615"),
    "bool": ("bool", [True, False], "true false"),
    "string": ("string", [b'a"\\/\n', b"\0", "é".encode()], r'"a\"\\/\n" "\u0000" "é"'),
    "list": ("float", [[[1, 2]], [[3, 4]]], "[[1.0,~2.0]] [[3.0,~4.0]]"),
    "empty-list": ("float", [[], []], "[] []"),
}


@pytest.mark.parametrize(("name", "values", "texts"), list(ROWS.values()), ids=list(ROWS))
def test_rows_of_one_output_stand_on_one_line(name: str, values: object, texts: str) -> None:
    elements = ", ".join(texts.split(" ")).replace("~", " ")
    expected = f'{{\n    "predictions": [{elements}\n    ]\n}}'.encode()
    assert expected == encode({"y": (name, values)}, row_format=True)


def test_random_floats_read_back() -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    read = json.loads(encode({"y": ("float", values)}, row_format=True))["predictions"]
    np.testing.assert_array_equal(values, np.array(read, np.float32))


def test_answers_without_rows() -> None:
    assert b'{\n    "predictions": []\n}' == encode({"y": ("float", np.zeros((0, 3)))}, row_format=True)


def test_rows_of_several_outputs_are_objects() -> None:
    expected = b'{\n    "predictions": [\n        {\n            "a": 1.5,\n            "b": [2]\n        }\n    ]\n}'
    assert expected == encode({"b": ("int32", [[2]]), "a": ("float", [1.5])}, row_format=True)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        pytest.param({"y": ("float", 1.5)}, b'{\n    "outputs": 1.5\n}', id="scalar"),
        pytest.param(
            {"y": ("float", [2.5, 3])}, b'{\n    "outputs": [\n        2.5,\n        3.0\n    ]\n}', id="list"
        ),
        pytest.param(
            {"b": ("bool", True), "a": ("int32", [[1]])},
            b'{\n    "outputs": {\n        "a": [\n            [\n                1\n            ]\n'
            b'        ],\n        "b": true\n    }\n}',
            id="object",
        ),
        pytest.param({"y": ("string", b"\xff\xfe")}, b'{\n    "outputs": "\xff\xfe"\n}', id="raw-bytes"),
    ],
)
def test_columns_stand_one_value_a_line(outputs: dict[str, tuple[str, object]], expected: bytes) -> None:
    assert expected == encode(outputs, row_format=False)


def test_alias_with_suffix_bytes_is_written_as_base64() -> None:
    """Only strings are; the object's indent counts the lists around it."""
    expected = (
        b'{\n    "predictions": [{\n            "b64": "YQ=="\n        }, {\n            "b64": "//4="\n'
        b"        }\n    ]\n}"
    )
    assert expected == encode({"t_bytes": ("string", [b"a", b"\xff\xfe"])}, row_format=True)
    assert b'{\n    "outputs": 1\n}' == encode({"n_bytes": ("int32", 1)}, row_format=False)


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
def test_outputs_that_cannot_be_written(
    outputs: dict[str, tuple[str, object]], row_format: bool, expected: str
) -> None:
    with pytest.raises(StatusError) as refused:
        encode(outputs, row_format=row_format)
    assert (Code.INVALID_ARGUMENT, expected) == (refused.value.code, refused.value.message)
