"""Bodies of REST Classify and Regress: JSON objects to tf.Example, and the text of responses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.json.examples import (
    decode_classifications,
    decode_regressions,
    decode_request,
    encode_classifications,
    encode_regressions,
)
from savedmodel_bakery.wire.status import Code, StatusError


def features(serialized: bytes) -> dict[str, tuple[str | None, list]]:
    """The kind and the values of each feature."""
    result = {}
    for name, feature in schema.Example.FromString(serialized).features.feature.items():
        kind = feature.WhichOneof("kind")
        result[name] = (kind, list(getattr(feature, kind).value) if kind else [])
    return result


FEATURES = {
    "integer": ("80", ("int64_list", [80])),
    "bools": ("[true, false, 7]", ("int64_list", [1, 0, 7])),
    "floats": ("[80.0, 0.5, 1e39, -Infinity]", ("float_list", [80.0, 0.5, math.inf, -math.inf])),
    "strings": ('["é", {"b64": "/w=="}]', ("bytes_list", ["é".encode(), b"\xff"])),
    "empty": ("[]", (None, [])),
}


@pytest.mark.parametrize(("text", "expected"), list(FEATURES.values()), ids=list(FEATURES))
def test_the_kind_of_a_feature_follows_from_its_values(text: str, expected: tuple[str | None, list]) -> None:
    name, examples = decode_request(f'{{"examples": [{{"x": {text}}}]}}'.encode())
    assert ("", [{"x": expected}]) == (name, [features(example) for example in examples])


def test_features_of_an_example_replace_those_of_the_context() -> None:
    body = b'{"signature_name": "s", "context": {"x": 4.0, "c": 1}, "examples": [{}, {"x": 9.0}]}'
    name, examples = decode_request(body)
    assert "s" == name
    from_context = ("int64_list", [1])
    expected = [
        {"x": ("float_list", [4.0]), "c": from_context},
        {"x": ("float_list", [9.0]), "c": from_context},
    ]
    assert expected == [features(example) for example in examples]


ERRORS = {
    "no-json": ("", "JSON Parse error: The document is empty"),
    "no-object": ("[]", "JSON Value: [] Is not object"),
    "no-examples": (
        '{"a": 1}',
        "JSON Value: {\n    \"a\": 1\n} When method is classify, key 'examples' is expected and was not found",
    ),
    "no-list": (
        '{"examples": 1}',
        "JSON Value: {\n    \"examples\": 1\n} Expecting 'examples' value to be an list/array",
    ),
    "empty": (
        '{"examples": []}',
        "JSON Value: {\n    \"examples\": []\n} 'examples' value is an empty array",
    ),
    "example-no-object": ('{"examples": [[]]}', "Example must be JSON object but got JSON Array"),
    "context-no-object": (
        '{"context": null, "examples": [{}]}',
        "Example must be JSON object but got JSON Null",
    ),
    "null": ('{"examples": [{"x": null}]}', "Feature: x has element with unexpected JSON type: Null"),
    "nested": ('{"examples": [{"x": [[1]]}]}', "Feature: x has element with unexpected JSON type: Array"),
    "object": (
        '{"examples": [{"x": {"y": 1}}]}',
        "Feature: x has element with unexpected JSON type: Object",
    ),
    "object-with-a-repeated-key": (
        '{"examples": [{"x": {"y": 1, "y": 2}}]}',
        "Feature: x has element with unexpected JSON type: Object",
    ),
    "mixed": (
        '{"examples": [{"x": [1, 1.0]}]}',
        "Unexpected element type in feature: x expecting type: int64",
    ),
    "mixed-with-bytes": (
        '{"examples": [{"x": [1.0, "a"]}]}',
        "Unexpected element type in feature: x expecting type: float",
    ),
    "mixed-beyond-int64": (
        '{"examples": [{"x": [1.0, 9223372036854775808]}]}',
        "Unexpected element type in feature: x expecting type: float",
    ),
    "beyond-int64": (
        '{"examples": [{"k": 9223372036854775808}]}',
        "Feature: k has uint64_t element. Only int64_t is supported.",
    ),
    "base64": ('{"examples": [{"b": {"b64": "!"}}]}', "Unable to base64 decode"),
}


@pytest.mark.parametrize(("body", "expected"), list(ERRORS.values()), ids=list(ERRORS))
def test_error_texts(body: str, expected: str) -> None:
    with pytest.raises(StatusError) as caught:
        decode_request(body.encode())
    assert (Code.INVALID_ARGUMENT, expected) == (caught.value.code, caught.value.message)


def test_a_feature_name_need_not_be_utf_8() -> None:
    _, (example,) = decode_request(b'{"examples": [{"\xff": 1}]}')
    entry = b"\x0a\x01\xff\x12\x05\x1a\x03\x0a\x01\x01"  # Features.feature: the key, and an int64_list of 1
    assert b"\x0a\x0c\x0a\x0a" + entry == example


def test_the_last_of_repeated_features_counts_and_all_are_checked() -> None:
    _, (example,) = decode_request(b'{"examples": [{"x": 1, "x": 2.0}]}')
    assert {"x": ("float_list", [2.0])} == features(example)
    with pytest.raises(StatusError, match="unexpected JSON type: Null"):
        decode_request(b'{"examples": [{"x": null, "x": 2.0}]}')


CLASSES = np.array([[b'a"\\', b"\xff"]], object)
SCORES = np.array([[1.5, 3], [np.nan, 0.1]], np.float32)


@pytest.mark.parametrize(
    ("classes", "scores", "expected"),
    [
        pytest.param(CLASSES, SCORES[:1], rb'[["a\"\\", 1.5], ["' + b'\xff", 3.0]]', id="both"),
        pytest.param(CLASSES, None, rb'[["a\"\\", 0.0], ["' + b'\xff", 0.0]]', id="without-scores"),
        pytest.param(None, SCORES, b'[["", 1.5], ["", 3.0]], [["", NaN], ["", 0.1]]', id="without-classes"),
    ],
)
def test_classifications_are_pairs(classes: np.ndarray | None, scores: np.ndarray | None, expected: bytes) -> None:
    assert b'{\n    "results": [' + expected + b"\n    ]\n}" == encode_classifications(classes, scores)


@pytest.mark.parametrize("shape", [(3,), (3, 1)], ids=["vector", "column"])
def test_regressions_are_numbers(shape: tuple[int, ...]) -> None:
    values = np.array([2.75, -np.inf, 3], np.float32).reshape(shape)
    assert b'{\n    "results": [2.75, -Infinity, 3.0]\n}' == encode_regressions(values)


def test_a_response_is_read_as_labels_with_scores() -> None:
    body = b'{ "results": [[["cat", 0.75], ["dog", 0.25]], []] }'
    assert [[("cat", 0.75), ("dog", 0.25)], []] == decode_classifications(body)


def test_the_client_reads_what_the_server_writes() -> None:
    body = encode_classifications(np.array([[b"cat", "hünd".encode()]], object), np.array([[0.75, 0.25]], np.float32))
    assert [[("cat", 0.75), ("hünd", 0.25)]] == decode_classifications(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the response is not valid JSON"),
        (b"[]", "the response is not a JSON object"),
        (b"{}", 'the response has no "results" of labels with scores'),
        (b'{"results": [[1]]}', 'the response has no "results" of labels with scores'),
        (b'{"results": [[["cat", "x"]]]}', 'the response has no "results" of labels with scores'),
    ],
)
def test_other_responses_are_rejected(body: bytes, message: str) -> None:
    with pytest.raises(StatusError, match=message):
        decode_classifications(body)


def test_the_numbers_of_a_regress_response() -> None:
    assert [1.5, -2.0] == decode_regressions(b'{"results": [1.5, -2]}')
    for body in (b"{}", b'{"results": ["x"]}', b'{"results": [[1]]}', b'{"results": 1}'):
        with pytest.raises(StatusError, match='the response has no "results" of numbers'):
            decode_regressions(body)
