"""Reads the goldens of a baked version, replays them against a live server and compares the outputs.

Goldens are the requests that a version was verified with and the responses it gave. They are in the version's folder,
which a server does not serve. Sends calls through a client only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError

from savedmodel_bakery.answers import run_lengths
from savedmodel_bakery.client.client import BaseClient
from savedmodel_bakery.errors import AccessDeniedError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.storage.store import Store
from savedmodel_bakery.storage.versions import opened
from savedmodel_bakery.wire import schema, version_folder
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import decode_array

_INEXACT = "fcV"  # dtype kinds with fractions; V is that of ml_dtypes types such as bfloat16


class GoldensError(ValueError):
    """A folder has no goldens, or they are damaged."""


@dataclass(frozen=True)
class Golden:
    """One request (PredictRequest, ClassificationRequest or RegressionRequest), and its expected outputs by alias.

    They are `classes` and `scores`, both [examples, classes], for Classify, and `outputs` for Regress.
    """

    signature: str
    number: int  # among the requests of the signature, from 1
    request: Any
    expected: Mapping[str, np.ndarray]

    @property
    def has_examples(self) -> bool:
        """Whether the request is one of Classify or Regress, which the v2 protocol lacks."""
        return not isinstance(self.request, schema.PredictRequest)


@dataclass(frozen=True)
class Goldens:
    """All goldens of a version, in the order of replay."""

    model: str  # the name under which the version was baked
    tolerances: Mapping[str, float]  # absolute, of numbers and masks by alias; other outputs must be equal
    requests: Sequence[Golden]


def read_goldens(version: Path | Store) -> Goldens:
    """Read the goldens of a version in a folder or a bucket.

    Raises:
        GoldensError: there are none, or they cannot be read.
        PublishError: the bucket cannot be read.
    """
    with opened(version, {version_folder.GOLDENS}) as folder:
        return _read_goldens(folder / version_folder.GOLDENS, str(version))


def _read_goldens(folder: Path, source: str) -> Goldens:
    if not (folder / "index.json").is_file():
        raise GoldensError(f"{source} has no {version_folder.GOLDENS}: pass a version that was baked, such as MODEL/1")
    try:
        index = json.loads((folder / "index.json").read_text())
        requests = [
            _golden(signature, number, json.loads(line))
            for signature, entry in index["signatures"].items()
            for number, line in enumerate((folder / entry["file"]).read_text().splitlines(), 1)
        ]
        return Goldens(index["model"], dict(index["tolerances"]), requests)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, ParseError, StatusError) as error:
        raise GoldensError(f"the goldens in {source}/{version_folder.GOLDENS} are damaged: {error}") from error


def _golden(signature: str, number: int, exchange: Mapping[str, Any]) -> Golden:
    if "inputs" in exchange["request"]:
        request = _parse(exchange["request"], schema.PredictRequest())
        outputs = _parse(exchange["response"], schema.PredictResponse()).outputs
        return Golden(signature, number, request, {alias: decode_array(outputs[alias]) for alias in outputs})
    if "regressions" in exchange["response"]["result"]:
        request = _parse(exchange["request"], schema.RegressionRequest())
        result = _parse(exchange["response"], schema.RegressionResponse()).result
        return Golden(signature, number, request, _values([row.value for row in result.regressions]))
    request = _parse(exchange["request"], schema.ClassificationRequest())
    result = _parse(exchange["response"], schema.ClassificationResponse()).result
    rows = [[(scored.label, scored.score) for scored in row.classes] for row in result.classifications]
    return Golden(signature, number, request, _columns(rows))


def replay(golden: Golden, client: BaseClient, tolerances: Mapping[str, float]) -> list[str]:
    """Send a golden request and return how the response differs from the expected one; empty if it does not.

    Raises the errors that the other requests would raise too: of the connection, deadlines, and AccessDeniedError.
    """
    try:
        actual = _send(golden, client)
    except AccessDeniedError:
        raise  # the other requests would fail too
    except (RequestRefusedError, InvalidResponseError) as error:
        return [str(error)]
    ranked = _with_expected_ranks(actual, golden.expected, tolerances.get("scores", 0.0))
    return compare(golden.expected, ranked, lambda alias: tolerances.get(alias, 0.0))


def _with_expected_ranks(
    actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray], atol: float
) -> Mapping[str, np.ndarray]:
    """Return the outputs with the expected labels where the scores of two labels may have changed places.

    These are scores whose difference is at most twice the tolerance; the scores that were cut off count as 0.
    """
    scores = expected.get("scores")
    if scores is None or scores.ndim != 2:
        return actual
    is_tied = scores - np.pad(scores[:, 1:], ((0, 0), (0, 1))) <= 2 * atol
    is_tied[:, 1:] |= is_tied[:, :-1].copy()

    def is_label(alias: str) -> bool:
        pair = (expected.get(alias, scores), actual[alias])
        return all(array.dtype.kind in "OiuS" and array.shape == scores.shape for array in pair)

    return {
        alias: np.where(is_tied, expected[alias], array).astype(array.dtype) if is_label(alias) else array
        for alias, array in actual.items()
    }


def _feature_values(feature: Any) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def _send(golden: Golden, client: BaseClient) -> Mapping[str, np.ndarray]:
    if not golden.has_examples:
        inputs = {alias: decode_array(tensor) for alias, tensor in golden.request.inputs.items()}
        output_filter = list(golden.request.output_filter)
        return client.predict(inputs, signature=golden.signature, output_filter=output_filter).arrays
    examples = [
        {name: _feature_values(feature) for name, feature in example.features.feature.items()}
        for example in golden.request.input.example_list.examples
    ]
    if isinstance(golden.request, schema.RegressionRequest):
        return _values(client.regress_examples(examples, signature=golden.signature))
    return _columns(client.classify_examples(examples, signature=golden.signature))


def _columns(rows: Sequence[Sequence[tuple[str, float]]]) -> dict[str, np.ndarray]:
    return {
        "classes": np.array([[label for label, _ in row] for row in rows], object),
        "scores": np.array([[score for _, score in row] for row in rows], np.float32),
    }


def _values(values: Sequence[float]) -> dict[str, np.ndarray]:
    return {"outputs": np.array(values, np.float32)}


def _parse(document: Any, message: Any) -> Any:
    return ParseDict(document, message, descriptor_pool=schema.POOL)


def compare(
    expected: Mapping[str, np.ndarray], actual: Mapping[str, np.ndarray], atol_of: Callable[[str], float]
) -> list[str]:
    """Return a description of each expected output that differs. NaN equals NaN.

    `atol_of` returns the absolute tolerance of an output, for numbers with a fraction; and for masks as run lengths,
    for which it is 1 less their intersection over union. Anything else must be equal.
    """
    missing = [f'output "{alias}" is missing' for alias in expected if alias not in actual]
    differences = (
        _difference(alias, array, actual[alias], atol_of(alias)) for alias, array in expected.items() if alias in actual
    )
    return missing + [difference for difference in differences if difference]


def _difference(alias: str, expected: np.ndarray, actual: np.ndarray, atol: float) -> str:
    if actual.shape not in (expected.shape, _shape_in_json(expected)):
        return f'"{alias}" has shape {list(actual.shape)}, expected {list(expected.shape)}'
    if actual.dtype != expected.dtype:
        return f'"{alias}" is {actual.dtype}, expected {expected.dtype}'
    if not expected.size:
        return ""
    if expected.dtype.kind in _INEXACT:
        difference = _max_difference(expected.astype(np.complex128), actual.astype(np.complex128))
        return "" if difference <= atol else f'"{alias}" differs by {difference:.3g}; allowed is {atol:g}'
    is_different = actual != expected
    if alias.endswith(run_lengths.ALIAS) and actual.dtype.kind == "O":
        is_different[is_different] = [
            run_lengths.difference(*(each.decode("ascii", "replace") for each in pair)) > atol
            for pair in zip(expected[is_different], actual[is_different], strict=True)
        ]
    differing = np.argwhere(is_different)
    if not len(differing):
        return ""
    first = tuple(differing[0])
    return f'"{alias}" is {actual[first]!r} at {list(map(int, first))}, expected {expected[first]!r}'


def _shape_in_json(array: np.ndarray) -> tuple[int, ...]:
    """Return the shape that nested lists have: nothing is inside an empty one."""
    return array.shape[: array.shape.index(0) + 1] if 0 in array.shape else array.shape


def _max_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the largest difference; infinite if only one of two numbers is finite, or is a number."""
    is_same = (expected == actual) | (np.isnan(expected) & np.isnan(actual))
    differences = np.abs(actual[~is_same] - expected[~is_same])
    return float(np.max(np.where(np.isfinite(differences), differences, np.inf), initial=0.0))
