"""The client's side of the columnar Predict JSON, by tables of (array, JSON)."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from savedmodel_bakery.wire import dtypes
from savedmodel_bakery.wire.json.columns import decode_answer, encode_request
from savedmodel_bakery.wire.status import Code, StatusError


def strings(*items: object) -> np.ndarray:
    return np.array([*items, None], object)[:-1]


# Each row is read and written: the array, and the JSON of its value both ways.
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
    assert f'{{"signature_name":"s","inputs":{{"x":{value}}}}}'.encode() == encode_request({"x": array}, "s")


@pytest.mark.parametrize(("array", "value"), NUMBERS)
def test_numbers_are_read_as_the_declared_type(array: np.ndarray, value: str) -> None:
    read = decode_answer(f'{{"outputs": {value}}}'.encode(), {"y": dtypes.of_array(array)})["y"]
    assert (array.dtype, array.shape) == (read.dtype, read.shape)
    assert array.tobytes() == read.tobytes() or np.isnan(array).any()
    np.testing.assert_array_equal(read, array)


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
def test_types_that_servers_do_not_read_from_json_are_refused(dtype: type) -> None:
    array = np.zeros(1, dtype)
    with pytest.raises(StatusError) as caught:
        encode_request({"x": array}, "s")
    expected = (
        f'input "x" is {dtypes.of_array(array).name}, which servers cannot read from JSON; they read '
        "bool, double, float, int16, int32, int64, int8, string, uint32, uint64, uint8"
    )
    assert (Code.UNIMPLEMENTED, expected) == (caught.value.code, caught.value.message)


def test_an_object_that_is_no_string_is_refused() -> None:
    with pytest.raises(StatusError) as caught:
        encode_request({"x": strings(b"a", None)}, "s")
    assert 'an element of the string input "x" is NoneType; supported are bytes and str' == caught.value.message


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
    read = decode_answer(b'{"outputs": ' + value + b"}", {"y": dtypes.STRING})["y"]
    assert np.dtype(object) == read.dtype
    assert expected.tolist() == read.tolist()


def test_several_outputs_are_an_object() -> None:
    kinds = {"n": dtypes.BY_NAME["int32"], "s": dtypes.STRING}
    read = decode_answer(b'{"outputs": {"s": ["a"], "n": [1, 2]}}', kinds)
    assert {"n": [1, 2], "s": [b"a"]} == {alias: array.tolist() for alias, array in read.items()}


def test_a_float_beyond_its_range_becomes_infinite() -> None:
    assert [np.inf] == decode_answer(b'{"outputs": [1e39]}', {"y": dtypes.BY_NAME["float"]})["y"].tolist()


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        pytest.param(b"", "float", "the answer is not JSON: ", id="empty"),
        pytest.param(b"[" * 500_000, "float", "the answer is not JSON: ", id="deep"),
        pytest.param(b"[1]", "float", 'the answer is no JSON object with "outputs"', id="list"),
        pytest.param(b'{"predictions": [1]}', "float", 'the answer is no JSON object with "outputs"', id="row format"),
        pytest.param(b'{"outputs": ["1"]}', "float", 'output "y" does not hold values of float: ', id="text"),
        pytest.param(b'{"outputs": [null]}', "float", 'output "y" does not hold values of float: ', id="null"),
        pytest.param(b'{"outputs": [[1], 2]}', "float", 'output "y" does not hold values of ', id="ragged"),
        pytest.param(b'{"outputs": [1.5]}', "int32", 'output "y" does not hold values of int32: ', id="fraction"),
        pytest.param(b'{"outputs": [300]}', "int8", 'output "y" does not hold values of int8: ', id="range"),
        pytest.param(b'{"outputs": [-1]}', "uint64", 'output "y" does not hold values of ', id="negative"),
        pytest.param(b'{"outputs": [1]}', "bool", 'output "y" does not hold values of bool: ', id="number"),
        pytest.param(b'{"outputs": [1]}', "complex64", 'output "y" does not hold values of ', id="complex"),
        pytest.param(b'{"outputs": [1]}', "string", 'output "y" does not hold values of string: ', id="1"),
        pytest.param(b'{"outputs": [{"b64": "?"}]}', "string", 'output "y" does not hold ', id="base64"),
        pytest.param(b'{"outputs": ["\\ud800"]}', "string", 'output "y" does not hold ', id="lone surrogate"),
    ],
)
def test_what_is_no_such_answer_is_refused(body: bytes, kind: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_answer(body, {"y": dtypes.BY_NAME[kind]})
    assert Code.INVALID_ARGUMENT is caught.value.code
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("outputs", "found"), [('{"a": 1, "c": 2}', "a, c"), ("[1]", "one bare value")], ids=["others", "bare"]
)
def test_other_outputs_than_the_signature_has_are_refused(outputs: str, found: str) -> None:
    kinds = {"a": dtypes.BY_NAME["int32"], "b": dtypes.BY_NAME["int32"]}
    with pytest.raises(StatusError) as caught:
        decode_answer(f'{{"outputs": {outputs}}}'.encode(), kinds)
    assert f"the answer has {found}; the signature's outputs are a, b" == caught.value.message
