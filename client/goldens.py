"""Goldens: requests that a version was baked with and the answers it gave then, replayed against a live server.

They lie in the version's folder, which a server doesn't hand out. Must not know a transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError

from savedmodel_bakery.client.client import Client
from savedmodel_bakery.client.comparison import compare
from savedmodel_bakery.client.errors import ConnectionFailedError, InvalidResponseError, RequestRefusedError
from savedmodel_bakery.wire import schema, version_folder
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import decode_array


class GoldensError(ValueError):
    """A folder holds no goldens, or damaged ones."""


@dataclass(frozen=True)
class Golden:
    """One request and its answer.

    Attributes:
        signature: whom it asks.
        number: its place among the requests of that signature, from 1.
        request: a PredictRequest or a ClassificationRequest.
        expected: alias to array; of Classify `classes` and `scores`, both [examples, classes].
    """

    signature: str
    number: int
    request: Any
    expected: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Goldens:
    """All of a version.

    Attributes:
        model: the name it was baked under.
        tolerances: how much the numbers of an output may differ, by its alias; others must be equal.
        requests: in the order in which they are asked.
    """

    model: str
    tolerances: Mapping[str, float]
    requests: Sequence[Golden]


def read_goldens(version: Path) -> Goldens:
    """Read those of a version's folder.

    Raises:
        GoldensError: there are none, or they can't be read.
    """
    folder = version / version_folder.GOLDENS
    if not (folder / "index.json").is_file():
        raise GoldensError(
            f"{version} holds no {version_folder.GOLDENS}; give the folder of a version that was baked, as MODEL/1"
        )
    try:
        index = json.loads((folder / "index.json").read_text())
        requests = [
            _golden(signature, number, json.loads(line))
            for signature, entry in index["signatures"].items()
            for number, line in enumerate((folder / entry["file"]).read_text().splitlines(), 1)
        ]
        return Goldens(index["model"], dict(index["tolerances"]), requests)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, ParseError, StatusError) as error:
        raise GoldensError(f"the goldens in {folder} are damaged: {error}") from error


def _golden(signature: str, number: int, exchange: Mapping[str, Any]) -> Golden:
    if "inputs" in exchange["request"]:
        request = _parse(exchange["request"], schema.PredictRequest())
        outputs = _parse(exchange["response"], schema.PredictResponse()).outputs
        return Golden(signature, number, request, {alias: decode_array(outputs[alias]) for alias in outputs})
    request = _parse(exchange["request"], schema.ClassificationRequest())
    result = _parse(exchange["response"], schema.ClassificationResponse()).result
    rows = [[(scored.label, scored.score) for scored in row.classes] for row in result.classifications]
    return Golden(signature, number, request, _columns(rows))


def replay(golden: Golden, client: Client, tolerances: Mapping[str, float]) -> list[str]:
    """Ask a server and say in what its answer differs; nothing where it agrees.

    Raises:
        ConnectionFailedError: nobody answers there.
    """
    try:
        found = _ask(golden, client)
    except ConnectionFailedError:
        raise
    except (RequestRefusedError, InvalidResponseError) as error:
        return [str(error)]
    return compare(golden.expected, found, lambda alias: tolerances.get(alias, 0.0))


def _ask(golden: Golden, client: Client) -> Mapping[str, np.ndarray]:
    if isinstance(golden.request, schema.PredictRequest):
        inputs = {alias: decode_array(tensor) for alias, tensor in golden.request.inputs.items()}
        wanted = list(golden.request.output_filter)
        return client.predict(inputs, signature=golden.signature, output_filter=wanted).arrays
    examples = [
        {name: feature.bytes_list.value[0] for name, feature in example.features.feature.items()}
        for example in golden.request.input.example_list.examples
    ]
    return _columns(client.classify_examples(examples, signature=golden.signature))


def _columns(rows: Sequence[Sequence[tuple[str, float]]]) -> dict[str, np.ndarray]:
    return {
        "classes": np.array([[label for label, _ in row] for row in rows], object),
        "scores": np.array([[score for _, score in row] for row in rows], np.float32),
    }


def _parse(document: Any, message: Any) -> Any:
    return ParseDict(document, message, descriptor_pool=schema.POOL)
