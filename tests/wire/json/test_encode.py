"""How arrays are written as JSON, and how errors show JSON values and name their types."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME
from savedmodel_bakery.wire.json.encode import quote, show_value, type_name
from savedmodel_bakery.wire.json.predict_response import encode_response
from savedmodel_bakery.wire.tensors import Tensor


def encode(outputs: dict[str, tuple[str, object]], *, row_format: bool) -> bytes:
    """The response body for outputs that are given as the name of the element type, and values."""
    tensors = {
        alias: Tensor(np.array(value, BY_NAME[name].numpy), BY_NAME[name]) for alias, (name, value) in outputs.items()
    }
    return encode_response(tensors, row_format=row_format)


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
def test_rows_of_one_output_are_on_one_line(name: str, values: object, texts: str) -> None:
    elements = ", ".join(texts.split(" ")).replace("~", " ")
    expected = f'{{\n    "predictions": [{elements}\n    ]\n}}'.encode()
    assert expected == encode({"y": (name, values)}, row_format=True)


def test_random_floats_read_back() -> None:
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    read = json.loads(encode({"y": ("float", values)}, row_format=True))["predictions"]
    np.testing.assert_array_equal(values, np.array(read, np.float32))


def test_a_response_without_rows() -> None:
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
def test_columns_have_one_value_per_line(outputs: dict[str, tuple[str, object]], expected: bytes) -> None:
    assert expected == encode(outputs, row_format=False)


def test_strings_of_an_alias_ending_in_bytes_are_base64() -> None:
    """Numbers are not; the lists around an object count for its indentation."""
    expected = (
        b'{\n    "predictions": [{\n            "b64": "YQ=="\n        }, {\n            "b64": "//4="\n'
        b"        }\n    ]\n}"
    )
    assert expected == encode({"t_bytes": ("string", [b"a", b"\xff\xfe"])}, row_format=True)
    assert b'{\n    "outputs": 1\n}' == encode({"n_bytes": ("int32", 1)}, row_format=False)


SHOWN = {
    "null": (None, "null"),
    "true": (True, "true"),
    "integer": (-5, "-5"),
    "float": (1.0, "1.0"),
    "negative-zero": (-0.0, "-0.0"),
    "large-float": (1e22, "1e22"),
    "long-float": (1e20, "100000000000000000000.0"),
    "small-float": (1.5e-7, "1.5e-7"),
    "fraction": (0.00125, "0.00125"),
    "denormal": (5e-324, "5e-324"),
    "shortest-digits": (2.0**64, "18446744073709552000.0"),
    "nan": (math.nan, "NaN"),
    "infinity": (-math.inf, "-Infinity"),
    "string": ('a"\x1f\u00e9', '"a\\"\\u001F\u00e9"'),
    "list-on-one-line": ([1, [2, []], "x"], '[1, [2, []], "x"]'),
    "empty-object": ({}, "{}"),
    "object": ({"a": {"b": [1]}, "c": 2}, '{\n    "a": {\n        "b": [1]\n    },\n    "c": 2\n}'),
    "object-in-list-is-indented-by-both": ([{"a": 1}], '[{\n        "a": 1\n    }]'),
}


@pytest.mark.parametrize(("value", "expected"), SHOWN.values(), ids=SHOWN)
def test_a_value_is_shown_in_the_layout_of_rapidjson(value: object, expected: str) -> None:
    assert expected == show_value(value)  # type: ignore[arg-type]


def test_a_shown_value_is_cut_after_259_bytes() -> None:
    """Nothing marks the cut."""
    assert "[" + "1, " * 86 == show_value([1] * 1_000_000)
    assert '"' + "x" * 258 == show_value("x" * 1_000_000)


def test_a_value_is_cut_between_characters() -> None:
    assert '"' + "é" * 129 == show_value("é" * 1000)
    assert '"x' + "é" * 128 == show_value("x" + "é" * 1000)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("Null", None),
        ("False", False),
        ("True", True),
        ("Object", {}),
        ("Array", []),
        ("String", ""),
        ("Number", 0),
        ("Number", 0.5),
    ],
)
def test_type_names_of_error_messages(expected: str, value: object) -> None:
    assert expected == type_name(value)  # type: ignore[arg-type]


def test_quote_escapes_only_what_json_requires() -> None:
    assert r'"\"\\/\n\u0000' + "é\x7f" + '"' == quote('"\\/\n\x00é\x7f')
