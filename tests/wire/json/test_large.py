"""Large JSON texts: parsed slice by slice, within limits of depth, time and memory."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest

from savedmodel_bakery.wire.dtypes import BY_NAME
from savedmodel_bakery.wire.json import parser
from savedmodel_bakery.wire.json.decode import decode_array
from savedmodel_bakery.wire.json.parser import ParseLimits, discard, members_of, parse_json
from savedmodel_bakery.wire.json.predict_response import encode_response, response_size
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
    "many repeated names": b"{" + b",".join([b'"k": 1'] * 20_000) + b"}",
    "beyond JSON": listed(b"Inf", 30_000),
    "text that follows": listed(b"1", 30_000) + b" ] [ and more",
    "white space": listed(b" \n\t 1 \r\n", 30_000),
    "byte order mark": b"\xef\xbb\xbf " + listed(b"1", 30_000),
    "not UTF-8": listed(b'"\xff\xf0\x9f\x98\x80"', 30_000),
}


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse smaller texts slice by slice too."""
    monkeypatch.setattr(parser, "_MANY_VALUES", 10_000)


@pytest.mark.parametrize("text", PARSED.values(), ids=PARSED.keys())
def test_a_large_text_has_the_same_values_as_in_one_piece(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = parse_json(text)
    monkeypatch.setattr(parser, "_MANY_VALUES", 10_000)
    checks: list[None] = []
    value = parse_json(text, ParseLimits(check=lambda: checks.append(None)))
    assert expected == value
    assert isinstance(expected, dict)
    assert isinstance(value, dict)
    assert list(members_of(expected)) == list(members_of(value))
    assert len(checks) > len(text) / 2**17


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (b",]", "Invalid value."),
        (b" 1]", "Missing a comma or ']' after an array element."),
        (b", 1", "Missing a comma or ']' after an array element."),
        (b", 1}", "Missing a comma or ']' after an array element."),
        (b', "\\ud800"]', "The surrogate pair in string is invalid."),
        (b', "\xff" 1]', "Missing a comma or ']' after an array element."),
    ],
)
def test_errors_of_a_large_text_have_their_byte_offset(
    end: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b'{"a": [' + b",".join([b'{"a": [1, 2]}'] * 30_000) + end
    with pytest.raises(StatusError) as expected:
        parse_json(text)
    monkeypatch.setattr(parser, "_MANY_VALUES", 10_000)
    with pytest.raises(StatusError) as caught:
        parse_json(text)
    assert expected.value.message == caught.value.message
    assert reason in caught.value.message


@pytest.mark.usefixtures("slices")
def test_a_large_text_that_is_not_an_object_is_not_parsed() -> None:
    assert [] == parse_json(b"[" + b"1," * 30_000 + b"not JSON")


@pytest.mark.usefixtures("slices")
def test_a_parse_ends_when_its_check_fails() -> None:
    def fail() -> None:
        raise StatusError(Code.DEADLINE_EXCEEDED, "too late")

    for text in (listed(b"Inf", 30_000), b'{"a": ' + b"[" * 300_000):
        with pytest.raises(StatusError, match="too late"):
            parse_json(text, ParseLimits(check=fail))


SIZES = {
    "float": b"0.12345678901",
    "int64": b"1234567890123",
    "int32": b"[]",
    "string": b'"\xf0\x9f\x98\x80"',
    "uint64": b'"' + b"\xff" * 100 + b'"',
    "bool": b'[[[[{"a": 1}]]]]',
    "double": b'{"a": 1, "b": 2}',
    "uint8": b'{"a": Inf, "a": {}}',
}


@pytest.mark.parametrize("many_values", [1000, 1_000_000], ids=["slice by slice", "at once"])
@pytest.mark.parametrize(("dtype", "element"), SIZES.items())
def test_decoding_needs_no_more_memory_than_estimated(
    dtype: str, element: bytes, many_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "_MANY_VALUES", many_values)
    text = b'{"x": [' + b",".join([element] * 3000) + b"]}"
    sizes: list[int] = []
    tracemalloc.start()
    try:
        value = parse_json(text, ParseLimits(prepare=lambda content: sizes.append(content.size)))
        assert isinstance(value, dict)
        with contextlib.suppress(StatusError):  # some elements do not fit the type
            decode_array(value["x"], BY_NAME[dtype], "x")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= sizes[0]


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("text", PARSED.values(), ids=PARSED.keys())
def test_a_large_value_can_be_freed_step_by_step(text: bytes) -> None:
    parsed: list = []
    value = parse_json(text, ParseLimits(parsed=parsed.append))
    assert isinstance(value, dict)
    lists = [member for member in value.values() if isinstance(member, list)]
    discard(parsed.pop())
    assert not value
    assert not list(members_of(value))
    assert not any(lists)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("end", [b"x", b'{"a": [1, {"b": 1'])
def test_what_was_parsed_before_an_error_is_freed_step_by_step(end: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    discarded: list = []
    monkeypatch.setattr(parser, "discard", lambda value: discarded.append(str(value)[:20]))
    with pytest.raises(StatusError):
        parse_json(b'{"a": [' + b"1," * 30_000 + end)
    assert ["[[('a', [1, 1, 1, 1,"] == discarded


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
