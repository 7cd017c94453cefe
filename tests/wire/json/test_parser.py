"""The JSON parser: what it accepts beyond JSON, what it rejects and where."""

from __future__ import annotations

import math

import pytest

from savedmodel_bakery.wire.json.encode import show_value
from savedmodel_bakery.wire.json.parser import parse_json
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
    "names-that-are-not-utf-8": (b'{"\xe9": "\xc3\xa9\\u00e9", "\xe9": 1}\xff', {"\udce9": "éé"}),
    "largest-integers": (b"[18446744073709551615, -9223372036854775808]", [2**64 - 1, -(2**63)]),
    "beyond-64-bits": (b"[18446744073709551616, -9223372036854775809]", [2.0**64, -(2.0**63)]),
    "long-numbers-between-strings": (b'["a", 1, "b", 18446744073709551616, "c"]', ["a", 1, "b", 2.0**64, "c"]),
    "long-numbers-behind-an-escape": (rb'["\"", 18446744073709551616, "x"]', ['"', 2.0**64, "x"]),
    "zeros-with-exponents": (b"[0e308, 0.00e310, 0e-999, 0E+08]", [0.0, 0.0, 0.0, 0.0]),
    "exponents": (b"[1e3, 1E+2, 1e-400, 1e308]", [1000.0, 100.0, 0.0, 1e308]),
    "many-digits": (b"[0.0012345678901234567890]", [0.0012345678901234568]),
    "thousands-of-digits": (
        b"[0." + b"1" * 5000 + b", " + b"9" * 300 + b"]",
        [0.11111111111111112, 1.0000000000000002e300],
    ),
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
    "offsets-are-of-bytes-that-are-not-utf-8": (b'["\xe9\xff", \xff]', "Invalid value. at offset: 7"),
    "offsets-include-the-byte-order-mark": (
        b'\xef\xbb\xbf["a" 1]',
        "Missing a comma or ']' after an array element. at offset: 8",
    ),
    "colon-only": (b" : 1", "The document is empty. at offset: 1"),
}


def table(cases: dict[str, tuple]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("value", "expected"), list(cases.values()), ids=list(cases))


@table(VALUES)
def test_values(value: bytes, expected: object) -> None:
    """The types of the values are the same too."""
    assert repr(expected) == repr(parse_json(value))


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
def test_a_thousand_levels_are_parsed_and_shown(opening: bytes, closing: bytes) -> None:
    value = parse_json(b'{"deep": ' + opening * 999 + b"1" + closing * 999 + b', "x": 2}')
    assert isinstance(value, dict)
    assert 2 == value["x"]
    assert 259 == len(show_value(value))


@pytest.mark.parametrize(
    "text",
    [b"[" * 1001 + b"]" * 1001, b'{"a":' * 1001, b'{"a": ' + b"[" * 10_000_000, b'{"a": [[1], ' + b"[" * 999],
    ids=["lists", "objects", "large", "beside others"],
)
def test_more_levels_are_rejected(text: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        parse_json(text)
    assert (Code.INVALID_ARGUMENT, "the request nests more than 1000 JSON arrays and objects") == (
        caught.value.code,
        caught.value.message,
    )


@pytest.mark.parametrize(
    "text",
    [b'["' + b"[" * 2000 + b'\\""]', b"[1]" + b"[" * 2000, b"[" + b"[]," * 2000 + b"1]"],
    ids=["in a string", "after the value", "beside each other"],
)
def test_only_the_depth_of_the_value_counts(text: bytes) -> None:
    assert isinstance(parse_json(text), list)
