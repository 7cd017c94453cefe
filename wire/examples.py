"""Encodes examples as tf.Example (tensorflow/core/example/example.proto)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.features import Example, FeatureList, feature_values
from savedmodel_bakery.wire.varints import varint


class ExamplesWithContext(Sequence[bytes]):
    """Serialized tf.Examples with common features (`context`), which precede the bytes of each: that merges them.

    Each is made when it is read, because together they may be much larger than the message that they came in.
    """

    def __init__(self, context: bytes, examples: Sequence[bytes]) -> None:
        self._context = context
        self._examples = examples

    @property
    def size(self) -> int:
        """The bytes of all examples."""
        return len(self._context) * len(self._examples) + sum(map(len, self._examples))

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ExamplesWithContext(self._context, self._examples[index])
        return self._context + self._examples[index]


_LISTS = {bytes: "bytes_list", int: "int64_list", float: "float_list"}


def encode_example(example: Example) -> Any:
    """Encode features as a tf.Example message."""
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
