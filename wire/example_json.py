"""Bodies of REST Classify and Regress: JSON objects to tf.Example, classes and values to the answers.

The kind of a feature follows the JSON value alone, whatever the model wants: `80` is an int64, `80.0` a
float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wire import schema
from wire.array_to_json import float_texts, line, quote_bytes
from wire.json_text import JsonValue, type_name
from wire.json_to_array import decode_base64, is_base64
from wire.predict_json import document_error, parse_document
from wire.status import invalid_argument


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
    example = schema.Example()
    for name, content in value.items():
        try:
            feature = example.features.feature[name]
        except (UnicodeEncodeError, ValueError):
            raise invalid_argument(f"Feature name {name!a} is not valid UTF-8") from None
        _fill_feature(feature, name, content if isinstance(content, list) else [content])
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def _fill_feature(feature: Any, name: str, values: list[JsonValue]) -> None:
    kind = ""
    converted = []
    for value in values:
        value_kind, element = _element(name, value)
        kind = kind or value_kind
        if value_kind != kind:
            raise invalid_argument(f"Unexpected element type in feature: {name} expecting type: {kind}")
        converted.append(element)
    if kind == "float":
        with np.errstate(over="ignore", under="ignore"):
            converted = np.array(converted, np.float64).astype(np.float32).tolist()
    if kind:
        getattr(feature, f"{kind}_list").value.extend(converted)


def _element(name: str, value: JsonValue) -> tuple[str, int | float | bytes]:
    """Give one value of a feature with the kind of list it belongs to."""
    if isinstance(value, str):
        return "bytes", value.encode("utf-8", "surrogateescape")
    if is_base64(value):
        return "bytes", decode_base64(value)
    if isinstance(value, float):
        return "float", value
    if isinstance(value, int):
        if value > 2**63 - 1:
            raise invalid_argument(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        return "int64", int(value)
    raise invalid_argument(f"Feature: {name} has element with unexpected JSON type: {type_name(value)}")


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
