"""What an example holds, as a client writes it: a feature's name to a value, or to several of a kind.

The kind of a feature follows its values, as the REST API has it: int is int64, float is float, bytes and str are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from savedmodel_bakery.wire.status import invalid_argument

FeatureValue = bytes | str | int | float
Feature = FeatureValue | Sequence[FeatureValue]
Example = Mapping[str, Feature]
ScoredClass = tuple[str, float]


def feature_values(name: str, feature: Feature) -> list[bytes] | list[int] | list[float]:
    """The values of a feature, all of one kind; a str is its UTF-8.

    Raises:
        StatusError: INVALID_ARGUMENT for values that no feature holds, of several kinds, or for none.
    """
    given = [feature] if isinstance(feature, (bytes, str, int, float)) else list(feature)
    values = [value.encode() if isinstance(value, str) else value for value in given]
    for kind in (bytes, int, float):
        if values and all(type(value) is kind for value in values):
            return values  # type: ignore[return-value]  # which of the three has just been seen
    raise invalid_argument(
        f'feature "{name}" is {feature!r:.60}; allowed are bytes or str, int, or float, one or a list of a kind'
    )
