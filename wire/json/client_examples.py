"""The JSON of Classify as a client sees it: request bodies it writes, answers it reads. Must not know HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pybase64

from savedmodel_bakery.wire.features import Example, Feature, ScoredClass, feature_values
from savedmodel_bakery.wire.status import invalid_argument


def encode_request(examples: Sequence[Example], signature: str) -> bytes:
    """Write the body of a Classify request.

    Raises:
        StatusError: INVALID_ARGUMENT for values that no feature holds.
    """
    spelled = [{name: _spell(name, feature) for name, feature in example.items()} for example in examples]
    return json.dumps({"signature_name": signature, "examples": spelled}, separators=(",", ":")).encode()


def decode_answer(body: bytes) -> list[list[ScoredClass]]:
    """Read the classes of each example from the answer to a Classify request.

    Raises:
        StatusError: INVALID_ARGUMENT where the body is no such answer.
    """
    try:
        results = json.loads(body.decode("utf-8", "surrogateescape"))["results"]
        return [[(str(label), float(score)) for label, score in row] for row in results]
    except (ValueError, RecursionError, TypeError, KeyError) as error:
        raise invalid_argument(f'the answer has no "results" of labels with scores: {error!r}') from error


def _spell(name: str, feature: Feature) -> list[Any]:
    values = feature_values(name, feature)
    return [{"b64": pybase64.b64encode_as_string(value)} if isinstance(value, bytes) else value for value in values]
