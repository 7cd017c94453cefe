"""Examples: their features as plain Python values, as a client passes them, and as tf.Example.

The kind of a feature follows from its values, as in the REST API: int64 from int, float from float, bytes from bytes
and str. Protobuf is imported on demand, because REST clients do without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from savedmodel_bakery.wire.encoding import delimited_field
from savedmodel_bakery.wire.status import invalid_argument

FeatureValue = bytes | str | int | float
Feature = FeatureValue | Sequence[FeatureValue]
Example = Mapping[str, Feature]
ScoredClass = tuple[str, float]
FeatureList = tuple[str, list[Any]]
"""The kind of a feature (`bytes`, `int64` or `float`; empty if it has no values) and its values."""


def feature_values(name: str, feature: Feature) -> list[bytes] | list[int] | list[float]:
    """Return the values of a feature, all of one type; str is encoded as UTF-8."""
    items = [feature] if isinstance(feature, (bytes, str, int, float)) else list(feature)
    values = [value.encode() if isinstance(value, str) else value for value in items]
    for value_type in (bytes, int, float):
        if values and all(type(value) is value_type for value in values):
            return values  # type: ignore[return-value]  # all values have this type
    raise invalid_argument(
        f'feature "{name}" is {feature!r:.60}; must be bytes or str, int, or float, or a list of values of one type'
    )


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
    """Encode features as a tf.Example message (tensorflow/core/example/example.proto)."""
    from savedmodel_bakery.wire import schema

    message = schema.Example()
    for name, feature in example.items():
        values = feature_values(name, feature)
        getattr(message.features.feature[name], _LISTS[type(values[0])]).value.extend(values)
    return message


def serialize_example(features: Mapping[str, FeatureList]) -> bytes:
    """Serialize a tf.Example whose names need not be valid UTF-8 (surrogate escapes), which protobuf would reject."""
    from savedmodel_bakery.wire import schema

    entries = []
    for name, (kind, values) in sorted(features.items()):
        feature = schema.Feature()
        if kind:
            getattr(feature, f"{kind}_list").value.extend(values)
        key = delimited_field(1, name.encode("utf-8", "surrogateescape"))
        entries.append(delimited_field(1, key + delimited_field(2, feature.SerializeToString())))  # Features.feature
    return delimited_field(1, b"".join(entries))  # Example.features
