"""Large JSON texts: parsed slice by slice, within limits of depth, time and memory."""

from __future__ import annotations

import contextlib
import json
import tracemalloc

import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME
from savedmodel_bakery.wire.json.decode import decode_array
from savedmodel_bakery.wire.json.exact import discard, parse_exact
from savedmodel_bakery.wire.json.limits import ParseLimits, survey
from savedmodel_bakery.wire.json.predict import encode_response, response_size
from savedmodel_bakery.wire.json.text import parse_json
from savedmodel_bakery.wire.status import Code, StatusError
from savedmodel_bakery.wire.tensors import Tensor


def listed(element: bytes, count: int) -> bytes:
    return b'{"a": [' + b", ".join([element] * count) + b'], "b": 7}'


PARSED = {
    "numbers": listed(b"1.25", 50_000),
    "lists": listed(b"[1, [2, 3], []]", 20_000),
    "objects": listed(b'{"x": {"y": [1]}, "z": null}', 20_000),
    "brackets, commas and escapes in strings": listed(rb'"],[{\\\"}, \\", "\\\\"', 20_000),
    "nested": listed(b"[1," * 300 + b"2" + b"]" * 300, 100),
    "wide elements": listed(b"[" + b",".join([b"[1,2]"] * 20_000) + b"]", 3),
    "wide objects": b"{" + b",".join(b'"k%d": [%d]' % (i, i) for i in range(20_000)) + b"}",
    "repeated names": b'{"k": [' + b",".join([b"1"] * 30_000) + b'], "k": 1, "l": 2}',
    "a value that only the exact parser accepts": listed(b"1", 30_000) + listed(b"Inf", 30_000),
    "text that follows": listed(b"1", 30_000) + b" ] [ and more",
    "white space": listed(b" \n\t 1 \r\n", 30_000),
    "not UTF-8": listed(b'"\xff\xf0\x9f\x98\x80"', 30_000),
}


@pytest.mark.parametrize("text", PARSED.values(), ids=PARSED.keys())
def test_a_large_text_has_the_same_values_as_in_one_piece(text: bytes) -> None:
    assert survey(text).is_large
    assert parse_exact(text) == parse_json(text)


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (b",]", "Invalid value."),
        (b" 1]", "Missing a comma or ']' after an array element."),
        (b", 1", "Missing a comma or ']' after an array element."),
        (b", 1}", "Missing a comma or ']' after an array element."),
        (b', "\\ud800"]', "The surrogate pair in string is invalid."),
    ],
)
def test_errors_of_a_large_text_have_their_byte_offset(end: bytes, reason: str) -> None:
    text = b"[" + b",".join([b'{"a": [1, 2]}'] * 30_000) + end
    with pytest.raises(StatusError) as expected:
        parse_exact(text)
    with pytest.raises(StatusError) as caught:
        parse_json(text)
    assert expected.value.message == caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 101 + b"]" * 101,
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * 10_000_000,
        listed(b"[" * 100 + b"]" * 100, 1000),
        b'"\\"",' * 100_000 + b"[" * 101,
        b"[Inf, " + b"[" * 100 + b"]" * 101,
    ],
    ids=["lists", "objects", "open lists", "below others", "after strings", "exact parser"],
)
def test_a_text_beyond_the_nesting_limit_is_rejected(text: bytes) -> None:
    text = text if text.startswith((b"[", b"{")) else b"[" + text
    with pytest.raises(StatusError) as caught:
        parse_json(text, ParseLimits(nesting=100))
    assert (
        Code.RESOURCE_EXHAUSTED,
        "the request nests more than 100 JSON arrays and objects (--max_json_nesting)",
    ) == (caught.value.code, caught.value.message)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100 + b"]" * 100,
        b'["' + b"[" * 1000 + b'\\""]',
        b"[1]" + b"[" * 1000,
        b"[" + b"[]," * 30_000 + b"1]",
    ],
    ids=["at the limit", "in a string", "after the value", "beside each other"],
)
def test_only_the_depth_of_the_value_counts(text: bytes) -> None:
    assert parse_json(text) == parse_json(text, ParseLimits(nesting=100))


def test_a_parse_ends_when_its_check_fails() -> None:
    def fail() -> None:
        raise StatusError(Code.DEADLINE_EXCEEDED, "too late")

    for text in (listed(b"Inf", 30_000), b"[" * 300_000):
        with pytest.raises(StatusError, match="too late"):
            parse_json(text, ParseLimits(check=fail))


SIZES = {
    "float": b"0.12345678901",
    "int64": b"1234567890123",
    "int32": b"[]",
    "string": b'"\xf0\x9f\x98\x80"',
    "bool": b'[[[[{"a": 1}]]]]',
    "double": b'{"a": 1, "b": 2}',
    "uint8": b'{"a": Inf, "a": {}}',
}


@pytest.mark.parametrize(("dtype", "element"), SIZES.items())
def test_decoding_needs_no_more_memory_than_estimated(dtype: str, element: bytes) -> None:
    text = b"[" + b",".join([element] * 3000) + b"]"
    sizes: list[int] = []
    tracemalloc.start()
    try:
        value = parse_json(text, ParseLimits(prepare=lambda content: sizes.append(content.size)))
        with contextlib.suppress(StatusError):  # some elements do not fit the type
            decode_array(value, BY_NAME[dtype], "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= sizes[0]


def test_a_large_value_can_be_freed_step_by_step() -> None:
    opened: list = []
    value = parse_json(b"[1," * 20_000 + b"2" + b"]" * 20_000, ParseLimits(opened=opened.append))
    discard(opened)
    assert ([], []) == (opened, value)


def test_texts_of_the_standard_library_are_parsed() -> None:
    value = {"instances": [{"x": [[i / 7, -i], [str(i), None]]} for i in range(20_000)]}
    assert value == parse_json(json.dumps(value, indent=2).encode())


@pytest.mark.parametrize("alias", ["x", "x_bytes"])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float", 1.2345679e-30), ("int64", -(2**62)), ("string", b"\x01" * 100), ("bool", True)],
    ids=["float", "int64", "string", "bool"],
)
def test_encoding_a_response_needs_no_more_memory_than_estimated(alias: str, dtype: str, value: object) -> None:
    for row_format in (True, False):
        outputs = {alias: Tensor(np.full((3000, 2), value, BY_NAME[dtype].numpy), BY_NAME[dtype])}
        tracemalloc.start()
        try:
            encode_response(outputs, row_format=row_format)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= response_size(outputs)
