"""One table of examples drives protobuf and the JSON of both roles: a mapping, the official tf.Example, the JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tensorflow as tf

from savedmodel_bakery.wire.examples import Example, encode_example
from savedmodel_bakery.wire.json.examples import decode_request, encode_request
from savedmodel_bakery.wire.status import Code, StatusError

TABLE: list[Any] = [
    pytest.param({"x": 7}, {"int64_list": [7]}, [7], id="int"),
    pytest.param({"x": [1, -2]}, {"int64_list": [1, -2]}, [1, -2], id="ints"),
    pytest.param({"x": 80.0}, {"float_list": [80.0]}, [80.0], id="float"),
    pytest.param({"x": "naïve"}, {"bytes_list": ["naïve".encode()]}, [{"b64": "bmHDr3Zl"}], id="text"),
    pytest.param({"x": [b"\xff\x00"]}, {"bytes_list": [b"\xff\x00"]}, [{"b64": "/wA="}], id="bytes"),
]


@pytest.mark.parametrize(("example", "lists", "document"), TABLE)
def test_protobuf_and_json_have_the_same_features(
    example: Example, lists: dict[str, list[Any]], document: list[Any]
) -> None:
    message = tf.train.Example.FromString(encode_example(example).SerializeToString())
    [(field, values)] = lists.items()
    assert values == list(getattr(message.features.feature["x"], field).value)
    body = encode_request([example, {}], "classify")
    assert {"signature_name": "classify", "examples": [{"x": document}, {}]} == json.loads(body)
    signature_name, decoded = decode_request(body)
    assert ("classify", [message, tf.train.Example(features={})]) == (
        signature_name,
        [tf.train.Example.FromString(serialized) for serialized in decoded],
    )


INVALID: dict[str, Any] = {"several types": [1, 2.0], "empty": [], "null": [None], "bool": True}


@pytest.mark.parametrize("feature", INVALID.values(), ids=INVALID)
def test_invalid_values_are_rejected_by_name(feature: Any) -> None:
    for encode in (encode_example, lambda example: encode_request([example], "s")):
        with pytest.raises(StatusError, match=r'feature "x" is .*; must be bytes or str, int, or float') as caught:
            encode({"x": feature})
        assert Code.INVALID_ARGUMENT is caught.value.code
