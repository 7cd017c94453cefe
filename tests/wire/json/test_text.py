"""The JSON parser: what it accepts beyond JSON, what it rejects and where, how errors show values."""

from __future__ import annotations

import math

import pytest

from savedmodel_bakery.wire.json.encode import quote
from savedmodel_bakery.wire.json.exact import parse_exact
from savedmodel_bakery.wire.json.text import parse_json, show_value, type_name
from savedmodel_bakery.wire.status import Code, StatusError

VALUES = {
    "object": (b'{"a": [1, 2.5, true, false, null, "x"]}', {"a": [1, 2.5, True, False, None, "x"]}),
    "empty": (b'[{}, [], ""]', [{}, [], ""]),
    "trailing-text": (b"[1] and more", [1]),
    "byte-order-mark": (b"\xef\xbb\xbf \r\n\t[1]", [1]),
    "first-of-repeated-keys": (b'{"x": 1, "y": 0, "x": 2}', {"x": 1, "y": 0}),
    "infinities": (b"[Infinity, Inf, -Infinity, -Inf]", [math.inf, math.inf, -math.inf, -math.inf]),
    "escapes": (rb'["\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"]', ['"\\/\b\f\n\r\t\u00e9\U0001f600']),
    "escaped-backslash-before-u": (rb'["\\ud800"]', [r"\ud800"]),
    "raw-utf-8": ('["é€😀"]'.encode(), ["é€😀"]),
    "not-utf-8": (b'["\xff\xfe"]', ["\udcff\udcfe"]),
    "largest-integers": (b"[18446744073709551615, -9223372036854775808]", [2**64 - 1, -(2**63)]),
    "beyond-64-bits": (b"[18446744073709551616, -9223372036854775809]", [2.0**64, -(2.0**63)]),
    "long-numbers-between-strings": (b'["a", 1, "b", 18446744073709551616, "c"]', ["a", 1, "b", 2.0**64, "c"]),
    "long-numbers-behind-an-escape": (rb'["\"", 18446744073709551616, "x"]', ['"', 2.0**64, "x"]),
    "zeros-with-exponents": (b"[0e308, 0.00e310, 0e-999, 0E+08]", [0.0, 0.0, 0.0, 0.0]),
    "exponents": (b"[1e3, 1E+2, 1e-400, 1e308]", [1000.0, 100.0, 0.0, 1e308]),
    "many-digits": (b"[0.0012345678901234567890]", [0.0012345678901234568]),
    "thousands-of-digits": (b"[0." + b"1" * 5000 + b", " + b"9" * 300 + b"]", [0.1111111111111111, 1e300]),
}
INVALID = {
    "empty": (b"", "The document is empty"),
    "white-space": (b" \n", "The document is empty. at offset: 2"),
    "only-bom": (b"\xef\xbb\xbf", "The document is empty. at offset: 3"),
    "open-object": (b"{", "Missing a name for object member. at offset: 1"),
    "single-quotes": (b"{'a': 1}", "Missing a name for object member. at offset: 1"),
    "comma-before-brace": (b'{"a": 1,}', "Missing a name for object member. at offset: 8"),
    "no-colon": (b'{"instances" [1.0]}', "Missing a colon after a name of object member. at offset: 13"),
    "no-member-value": (b'{"a": }', "Invalid value. at offset: 6"),
    "no-comma-in-object": (b'{"a": 1 "b": 2}', "Missing a comma or '}' after an object member. at offset: 8"),
    "no-comma-in-list": (b"[1 2]", "Missing a comma or ']' after an array element. at offset: 3"),
    "comma-before-bracket": (b"[1,]", "Invalid value. at offset: 3"),
    "open-list": (b'{"instances": [1.0', "Missing a comma or ']' after an array element. at offset: 18"),
    "nul-ends-it": (
        b'{"instances": [1.0\0]}',
        "Missing a comma or ']' after an array element. at offset: 18",
    ),
    "wrong-bracket": (b"[1}", "Missing a comma or ']' after an array element. at offset: 2"),
    "bracket-only": (b"]", "The document is empty. at offset: 0"),
    "word": (b"[nan]", "Invalid value. at offset: 2"),
    "half-infinity": (b"[Infinit]", "Invalid value. at offset: 8"),
    "plus": (b"[+1]", "Invalid value. at offset: 1"),
    "leading-point": (b"[.5]", "Invalid value. at offset: 1"),
    "leading-zero": (b"[01]", "Missing a comma or ']' after an array element. at offset: 2"),
    "hexadecimal": (b"[0x10]", "Missing a comma or ']' after an array element. at offset: 2"),
    "no-fraction": (b"[1.]", "Miss fraction part in number. at offset: 3"),
    "no-fraction-at-the-top": (b"1.", "Miss fraction part in number. at offset: 2"),
    "no-exponent": (b"[1e+]", "Miss exponent in number. at offset: 4"),
    "too-big": (b"[-1e400]", "Number too big to be stored in double. at offset: 1"),
    "zero-with-too-big-an-exponent": (b"[0.0e310]", "Number too big to be stored in double. at offset: 1"),
    "too-big-integer": (b"[" + b"9" * 400 + b"]", "Number too big to be stored in double. at offset: 1"),
    "too-big-by-both": (
        b"[" + b"9" * 290 + b"e99]",
        "Number too big to be stored in double. at offset: 1",
    ),
    "open-string": (b'["abc', "Missing a closing quotation mark in string. at offset: 5"),
    "nul-in-string": (b'["a\0"]', "Missing a closing quotation mark in string. at offset: 3"),
    "bad-escape": (rb'["ab\x"]', "Invalid escape character in string. at offset: 4"),
    "control-character": (b'["a\nb"]', "Invalid escape character in string. at offset: 3"),
    "bad-hex": (rb'["\u12g4"]', "Incorrect hex digit after \\u escape in string. at offset: 2"),
    "lone-high-surrogate": (rb'["\ud800"]', "The surrogate pair in string is invalid. at offset: 2"),
    "two-high-surrogates": (rb'["\ud800\ud800"]', "The surrogate pair in string is invalid. at offset: 2"),
    "lone-low-surrogate": (rb'["\\ud83d\ude00"]', "The surrogate pair in string is invalid. at offset: 9"),
    "offsets-are-of-bytes": ('["é", x]'.encode(), "Invalid value. at offset: 7"),
}
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


def table(cases: dict[str, tuple]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("value", "expected"), list(cases.values()), ids=list(cases))


@table(VALUES)
def test_both_parsers_return_the_same_values(value: bytes, expected: object) -> None:
    """The types of the values are the same too."""
    assert repr(expected) == repr(parse_json(value))
    assert repr(expected) == repr(parse_exact(value.removeprefix(b"\xef\xbb\xbf")))


def test_nan_is_read_with_and_without_a_sign() -> None:
    values = parse_json(b"[NaN, -NaN]")
    assert isinstance(values, list)
    assert [True, True] == [isinstance(value, float) and math.isnan(value) for value in values]


@table(INVALID)
def test_errors_have_the_reason_and_the_byte_offset(value: bytes, expected: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_json(value)
    assert (Code.INVALID_ARGUMENT, f"JSON Parse error: {expected}") == (
        caught.value.code,
        caught.value.message,
    )


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["lists", "objects"])
def test_half_a_million_levels_are_parsed_shown_and_freed(opening: bytes, closing: bytes) -> None:
    """Neither parsing nor showing nor freeing recurses."""
    levels = 500_000
    value = parse_json(b'{"deep": ' + opening * levels + b"1" + closing * levels + b', "x": 2}')
    assert isinstance(value, dict)
    assert 2 == value["x"]
    assert 259 == len(show_value(value))
    del value


def test_half_a_million_open_levels_are_rejected() -> None:
    with pytest.raises(StatusError, match=r"Invalid value\. at offset: 500000"):
        parse_json(b"[" * 500_000)


@table(SHOWN)
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
