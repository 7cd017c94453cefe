"""Bodies of REST Classify and Regress: JSON objects to tf.Example, classes and values to the answers.

The kind of a feature follows the JSON value alone, whatever the model wants: `80` is an int64, `80.0` a
float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.json.decode import decode_base64, is_base64
from savedmodel_bakery.wire.json.encode import float_texts, line, quote_bytes
from savedmodel_bakery.wire.json.predict import document_error, parse_document
from savedmodel_bakery.wire.json.text import JsonValue, members_of, type_name
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import varint


def parse_examples_body(body: bytes, method: str) -> tuple[str, list[bytes]]:
    """Read a Classify or Regress body.

    Args:
        body: the JSON text.
        method: `classify` or `regress`; refusals speak of classify in both, as upstream's do.

    Returns:
        The signature name, empty where the body names none, and a serialized tf.Example for each example. The
        bytes of a context come first in each, so that on reading the example's own features replace its.

    Raises:
        StatusError: INVALID_ARGUMENT.
    """
    if method not in ("classify", "regress"):
        raise ValueError(f"method is {method!r}, it must be 'classify' or 'regress'")
    document, signature_name = parse_document(body)
    context = _serialize(document["context"]) if "context" in document else b""
    if "examples" not in document:
        raise document_error(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise document_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise document_error(document, "'examples' value is an empty array")
    return signature_name, [context + _serialize(example) for example in examples]


def _serialize(value: JsonValue) -> bytes:
    if not isinstance(value, dict):
        raise invalid_argument(f"Example must be JSON object but got JSON {type_name(value)}")
    features = {}
    for full_name, content in members_of(value):
        name = full_name.partition("\0")[0]  # upstream reads it as a string of C; of a repeated name the last counts
        features[name] = _feature(name, content if isinstance(content, list) else [content])
    # Written by hand, as names may be no UTF-8: Example.features, and in it Features.feature, a map.
    entries = [
        _field(1, _field(1, name.encode("utf-8", "surrogateescape")) + _field(2, features[name].SerializeToString()))
        for name in sorted(features)
    ]
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that is bytes or a message (protobuf.dev/programming-guides/encoding)."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def _feature(name: str, values: list[JsonValue]) -> Any:
    feature = schema.Feature()
    kind = ""
    converted = []
    for value in values:
        value_kind = _kind(name, value)
        kind = kind or value_kind
        if value_kind != kind:
            raise invalid_argument(f"Unexpected element type in feature: {name} expecting type: {kind}")
        converted.append(_element(name, value))
    if kind == "float":
        with np.errstate(over="ignore", under="ignore"):
            converted = np.array(converted, np.float64).astype(np.float32).tolist()
    if kind:
        getattr(feature, f"{kind}_list").value.extend(converted)
    return feature


def _kind(name: str, value: JsonValue) -> str:
    """The kind of list that one value of a feature belongs to."""
    if isinstance(value, str) or is_base64(value):
        return "bytes"
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):
        return "int64"
    raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")


def _element(name: str, value: Any) -> int | float | bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return decode_base64(value)
    if isinstance(value, float):
        return value
    if value > 2**63 - 1:
        raise invalid_argument(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
    return int(value)


def encode_classifications(classes: np.ndarray | None, scores: np.ndarray | None) -> bytes:
    """Write the answer to Classify: a list of `[label, score]` an example.

    Args:
        classes: objects of bytes, [example, class]; None where the model gives none: labels are empty then.
        scores: float32, [example, class]; None where the model gives none: they are 0.0 then.
    """
    given = classes if scores is None else scores
    if given is None:
        raise ValueError("neither classes nor scores are given, an answer needs one of them")
    count, width = given.shape
    labels = ['""'] * (count * width) if classes is None else list(map(quote_bytes, classes.ravel().tolist()))
    numbers = ["0.0"] * (count * width) if scores is None else float_texts(scores)
    pairs = [f"[{label}, {number}]" for label, number in zip(labels, numbers, strict=True)]
    examples = [f"[{', '.join(pairs[row * width : (row + 1) * width])}]" for row in range(count)]
    return _results(", ".join(examples) + (line(1) if examples else ""))


def encode_regressions(values: np.ndarray) -> bytes:
    """Write the answer to Regress: one number an example; `values` are float32, [example] or [example, 1]."""
    return _results(", ".join(float_texts(values)))


def _results(elements: str) -> bytes:
    return f'{{\n    "results": [{elements}]\n}}'.encode("latin-1")
