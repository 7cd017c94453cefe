"""Turns the goldens of a version into warm-up requests of Triton: files with the data of inputs. Never runs a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError

from savedmodel_bakery.errors import TritonError
from savedmodel_bakery.exporter.signatures import Signature
from savedmodel_bakery.wire import dtypes, schema, version_folder
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import decode_array
from savedmodel_bakery.wire.v2.tensors import encode_raw


class InputData(NamedTuple):
    """The data of an input in a warm-up request.

    Attributes:
        file: name of the file in the model's folder `warmup`.
        dims: sizes, without the batch.
        data: content of the file, as binary tensor data of the v2 protocol.
    """

    file: str
    dims: tuple[int, ...]
    data: bytes


def warmup_requests(version: Path, signature: Signature, *, max_batch_size: int) -> list[dict[str, InputData]]:
    """Return the inputs, by name, of warm-up requests from the goldens of a signature; none if it has no goldens.

    With a maximum batch size, each row of a golden becomes a request, because Triton does not join warm-up requests;
    otherwise each golden becomes one.

    Args:
        version: folder of a SavedModel.
        signature: of the SavedModel.
        max_batch_size: of the model; 0 for none.

    Raises:
        TritonError: the goldens are damaged, or the model is batched and the inputs of a golden differ in the number of
            rows.
    """
    file = version / version_folder.GOLDENS / f"{signature.name}.jsonl"
    if not file.is_file():
        return []
    input_names = [tensor.alias for tensor in signature.inputs]
    try:
        requests = [_inputs(json.loads(line)["request"], input_names) for line in file.read_text("utf-8").splitlines()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ParseError, StatusError) as error:
        raise TritonError(f"the goldens in {file} are damaged: {error}") from error
    if max_batch_size:
        requests = [row for request in requests for row in _rows(request, max_batch_size)]
    unique = {
        tuple(bytes(encode_raw(array, dtypes.of_array(array))) for array in row.values()): row for row in requests
    }
    return [
        {
            alias: InputData(f"{version.name}-{number}-{index}", array.shape or (1,), data)
            for index, ((alias, array), data) in enumerate(zip(request.items(), contents, strict=True))
        }
        for number, (contents, request) in enumerate(unique.items(), 1)
    ]


def _inputs(request: dict[str, Any], input_names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the inputs of a request of Predict; for Classify and Regress, the serialized examples."""
    if "inputs" in request:
        message = ParseDict(request, schema.PredictRequest(), descriptor_pool=schema.POOL)
        return {alias: decode_array(message.inputs[alias]) for alias in input_names}
    (alias,) = input_names
    message = ParseDict(request, schema.ClassificationRequest(), descriptor_pool=schema.POOL)
    examples = [example.SerializeToString() for example in message.input.example_list.examples]
    return {alias: np.array(examples, np.object_)}


def _rows(request: Mapping[str, np.ndarray], max_batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    row_counts = {array.shape[:1] for array in request.values()}
    if len(row_counts) > 1 or () in row_counts:
        raise TritonError(
            f"invalid maximum batch size {max_batch_size}: the goldens' inputs have different numbers of rows; "
            "must be 0"
        )
    for row in range(len(next(iter(request.values())))):
        yield {alias: np.asarray(array[row], array.dtype) for alias, array in request.items()}
