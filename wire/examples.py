"""Encodes examples as tf.Example (tensorflow/core/example/example.proto)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.features import Example, FeatureList, feature_values
from savedmodel_bakery.wire.tensors import varint

_LISTS = {bytes: "bytes_list", int: "int64_list", float: "float_list"}


def encode_example(example: Example) -> Any:
    """Encode features as a tf.Example message.

    Raises:
        StatusError: INVALID_ARGUMENT for values that a feature cannot have.
    """
    message = schema.Example()
    for name, feature in example.items():
        values = feature_values(name, feature)
        getattr(message.features.feature[name], _LISTS[type(values[0])]).value.extend(values)
    return message


def serialize_example(features: Mapping[str, FeatureList]) -> bytes:
    """Serialize a tf.Example whose names need not be valid UTF-8 (surrogate escapes), which protobuf would reject."""
    entries = []
    for name, (kind, values) in sorted(features.items()):
        feature = schema.Feature()
        if kind:
            getattr(feature, f"{kind}_list").value.extend(values)
        entry = _field(1, name.encode("utf-8", "surrogateescape")) + _field(2, feature.SerializeToString())
        entries.append(_field(1, entry))  # Features.feature
    return _field(1, b"".join(entries))  # Example.features


def _field(number: int, content: bytes) -> bytes:
    """Serialize a length-delimited field (protobuf.dev/programming-guides/encoding)."""
    return varint(number << 3 | 2) + varint(len(content)) + content
