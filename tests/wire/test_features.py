"""Examples by one table: a mapping, the official tf.Example, the JSON of the REST API."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tensorflow as tf

from savedmodel_bakery.wire.examples import encode_example
from savedmodel_bakery.wire.features import Example
from savedmodel_bakery.wire.json import client_examples as examples_json
from savedmodel_bakery.wire.status import Code, StatusError

TABLE: list[Any] = [
    pytest.param({"x": 7}, {"int64_list": [7]}, [7], id="int"),
    pytest.param({"x": [1, -2]}, {"int64_list": [1, -2]}, [1, -2], id="ints"),
    pytest.param({"x": 80.0}, {"float_list": [80.0]}, [80.0], id="float"),
    pytest.param({"x": "naïve"}, {"bytes_list": ["naïve".encode()]}, [{"b64": "bmHDr3Zl"}], id="text"),
    pytest.param({"x": [b"\xff\x00"]}, {"bytes_list": [b"\xff\x00"]}, [{"b64": "/wA="}], id="bytes"),
]


@pytest.mark.parametrize(("example", "lists", "spelled"), TABLE)
def test_both_forms(example: Example, lists: dict[str, list[Any]], spelled: list[Any]) -> None:
    message = tf.train.Example.FromString(encode_example(example).SerializeToString())
    [(field, values)] = lists.items()
    assert values == list(getattr(message.features.feature["x"], field).value)
    body = json.loads(examples_json.encode_request([example, {}], "classify"))
    assert {"signature_name": "classify", "examples": [{"x": spelled}, {}]} == body


REFUSED: dict[str, Any] = {"several kinds": [1, 2.0], "none": [], "null": [None], "truth": True}


@pytest.mark.parametrize("feature", REFUSED.values(), ids=REFUSED)
def test_what_no_feature_holds_is_refused_by_name(feature: Any) -> None:
    for encode in (encode_example, lambda example: examples_json.encode_request([example], "s")):
        with pytest.raises(StatusError, match=r'feature "x" is .*; allowed are bytes or str') as refused:
            encode({"x": feature})
        assert Code.INVALID_ARGUMENT is refused.value.code


def test_the_answer() -> None:
    body = b'{ "results": [[["cat", 0.75], ["dog", 0.25]], []] }'
    assert [[("cat", 0.75), ("dog", 0.25)], []] == examples_json.decode_answer(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"results": [[1]]}', b'{"results": [[["cat", "x"]]]}'])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(StatusError, match='the answer has no "results" of labels with scores'):
        examples_json.decode_answer(body)
