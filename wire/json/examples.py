"""Bodies of REST Classify and Regress requests and responses, in both roles.

On the server, the kind of a feature follows from its JSON value alone, whatever the model expects: `80` is an int64,
`80.0` a float.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.examples import (
    Example,
    ExamplesWithContext,
    Feature,
    FeatureList,
    ScoredClass,
    feature_values,
    serialize_example,
)
from savedmodel_bakery.wire.json.decode import decode_base64, document_error, is_base64, parse_document, read_response
from savedmodel_bakery.wire.json.encode import float_texts, new_line, quote_bytes, shown_name, type_name
from savedmodel_bakery.wire.json.parser import NO_LIMITS, JsonValue, ParseLimits, members_of
from savedmodel_bakery.wire.status import invalid_argument


def encode_request(examples: Sequence[Example], signature_name: str) -> bytes:
    """Write the body of a Classify request (client role)."""
    documents = [{name: _feature_document(name, feature) for name, feature in example.items()} for example in examples]
    return json.dumps({"signature_name": signature_name, "examples": documents}, separators=(",", ":")).encode()


def _feature_document(name: str, feature: Feature) -> list[Any]:
    values = feature_values(name, feature)
    return [{"b64": pybase64.b64encode_as_string(value)} if isinstance(value, bytes) else value for value in values]


def decode_classifications(body: bytes) -> list[list[ScoredClass]]:
    """Read the classes of each example from the body of a Classify response (client role)."""
    document = read_response(body)
    try:
        return [[(str(label), float(score)) for label, score in row] for row in document["results"]]
    except (ValueError, TypeError, KeyError) as error:
        raise invalid_argument(f'the response has no "results" of labels with scores: {error!r}') from error


def decode_regressions(body: bytes) -> list[float]:
    """Read the number of each example from the body of a Regress response (client role)."""
    document = read_response(body)
    try:
        return [float(value) for value in document["results"]]
    except (ValueError, TypeError, KeyError) as error:
        raise invalid_argument(f'the response has no "results" of numbers: {error!r}') from error


def decode_request(body: bytes, limits: ParseLimits = NO_LIMITS) -> tuple[str, Sequence[bytes]]:
    """Read the body of a Classify or Regress request (server role).

    Error messages mention classify for both, as those of tensorflow_model_server.

    Returns the signature name, empty if the body has none, and a serialized tf.Example for each example. Each begins
    with the features of the context, so that a parser replaces them with the example's own.
    """
    document, signature_name = parse_document(body, limits)
    context = serialize_example(_decode_features(document["context"])) if "context" in document else b""
    if "examples" not in document:
        raise document_error(document, "When method is classify, key 'examples' is expected and was not found")
    examples = document["examples"]
    if not isinstance(examples, list):
        raise document_error(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        raise document_error(document, "'examples' value is an empty array")
    serialized = [serialize_example(_decode_features(example)) for example in examples]
    return signature_name, ExamplesWithContext(context, serialized) if context else serialized


def _decode_features(value: JsonValue) -> dict[str, FeatureList]:
    if not isinstance(value, dict):
        raise invalid_argument(f"Example must be JSON object but got JSON {type_name(value)}")
    features = {}
    for full_name, content in members_of(value):
        name = full_name.partition("\0")[0]  # tensorflow_model_server reads it as a C string
        # Every occurrence of a repeated name is checked; the last one counts.
        features[name] = _decode_feature(name, content if isinstance(content, list) else [content])
    return features


def _decode_feature(name: str, values: list[JsonValue]) -> FeatureList:
    kind = ""
    converted = []
    for value in values:
        value_kind = _feature_kind(name, value)
        kind = kind or value_kind
        if value_kind != kind:
            raise invalid_argument(f"Unexpected element type in feature: {shown_name(name)} expecting type: {kind}")
        converted.append(_feature_value(name, value))
    if kind == "float":
        with np.errstate(over="ignore", under="ignore"):
            converted = np.array(converted, np.float64).astype(np.float32).tolist()
    return kind, converted


def _feature_kind(name: str, value: JsonValue) -> str:
    """Return the kind of tf.Feature that has such a value: `bytes`, `float` or `int64`."""
    if isinstance(value, str) or is_base64(value):
        return "bytes"
    if isinstance(value, float):
        return "float"
    if isinstance(value, int):
        return "int64"
    raise invalid_argument(f"Feature: {shown_name(name)} has element with unexpected JSON type: {type_name(value)}")


def _feature_value(name: str, value: Any) -> int | float | bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, dict):
        return decode_base64(value)
    if isinstance(value, float):
        return value
    if value > 2**63 - 1:
        raise invalid_argument(f"Feature: {shown_name(name)} has uint64_t element. Only int64_t is supported.")
    return int(value)


def encode_classifications(classes: np.ndarray | None, scores: np.ndarray | None) -> bytes:
    """Write the body of a Classify response: a list of `[label, score]` per example (server role).

    `classes` are bytes, object [example, class], and `scores` float32 [example, class]; without them labels are empty
    and scores 0.0.
    """
    values = classes if scores is None else scores
    assert values is not None  # a model has classes or scores
    count, width = values.shape
    labels = ['""'] * (count * width) if classes is None else list(map(quote_bytes, classes.ravel().tolist()))
    numbers = ["0.0"] * (count * width) if scores is None else float_texts(scores)
    pairs = [f"[{label}, {number}]" for label, number in zip(labels, numbers, strict=True)]
    examples = [f"[{', '.join(pairs[row * width : (row + 1) * width])}]" for row in range(count)]
    return _results(", ".join(examples) + (new_line(1) if examples else ""))


def encode_regressions(values: np.ndarray) -> bytes:
    """Write the body of a Regress response: one number per example, from float32 [example] or [example, 1]."""
    return _results(", ".join(float_texts(values)))


def _results(elements: str) -> bytes:
    return f'{{\n    "results": [{elements}]\n}}'.encode("latin-1")
