"""How errors show JSON values and name their types."""

from __future__ import annotations

import math

import pytest

from savedmodel_bakery.wire.json.encode import quote
from savedmodel_bakery.wire.json.text import show_value, type_name

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
