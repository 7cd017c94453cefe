"""The features of an example as plain Python values, as a client passes them. Knows nothing of protobuf or JSON.

The kind of a feature follows from its values, as in the REST API: int64 from int, float from float, bytes from bytes
and str.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
