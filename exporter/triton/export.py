"""Exports SavedModels and pipelines to a Triton model repository, with their goldens as warm-up requests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.json_format import ParseDict, ParseError

from savedmodel_bakery.errors import PublishError, TritonError
from savedmodel_bakery.exporter.pipeline.check import CheckedStep, check_pipeline
from savedmodel_bakery.exporter.pipeline.pipeline_file import read_pipeline_file
from savedmodel_bakery.exporter.publish import RECIPE_FILE, model_name
from savedmodel_bakery.exporter.signatures import Signature, read_signatures
from savedmodel_bakery.exporter.triton.config import InputData, Options, ensemble_config, model_config
from savedmodel_bakery.exporter.triton.repository import Model, write_models
from savedmodel_bakery.storage.folders import check_name, find_version
from savedmodel_bakery.wire import dtypes, schema, version_folder
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import decode_array
from savedmodel_bakery.wire.v2.tensors import encode_raw

DEFAULT_SIGNATURES = ("top_k", "serving_default")

# An ensemble has no files of its own, and runs the newest version of each step.
_ENSEMBLE_VERSION = 1


def export_servable(
    path: Path, repository: Path, *, name: str | None = None, signature_name: str | None = None, options: Options
) -> list[Path]:
    """Write a model that runs one signature of a SavedModel; return the folder of its version in the repository.

    `path` is the folder of a version, or of versions, of which the newest is taken. No `signature_name` is the first of
    `DEFAULT_SIGNATURES` that the SavedModel has.
    """
    version = find_version(path)
    signature = _find_signature(version, signature_name)
    max_batch_size = options.batch_size(is_per_image=_is_per_image(version))
    name = check_name(model_name(version) if name is None else name)
    return write_models(repository, [_model_of(version, name, signature, options, max_batch_size=max_batch_size)])


def export_pipeline(path: Path, repository: Path, *, name: str | None = None, options: Options) -> list[Path]:
    """Write a model for each step of a pipeline, named PIPELINE.STEP, and an ensemble that connects them.

    All of them have the same maximum batch size: an ensemble passes the batch of the request to all its steps. Returns
    the folders of their versions in the repository, the ensemble's last.
    """
    checked = check_pipeline(read_pipeline_file(path))
    name = check_name(checked.pipeline.name if name is None else name)
    max_batch_size = options.batch_size(is_per_image=all(_is_per_image(step.version) for step in checked.steps))
    models = [
        _step_model(step, f"{name}.{step.name}", options, max_batch_size=max_batch_size) for step in checked.steps
    ]
    ensemble = Model(name, _ENSEMBLE_VERSION, ensemble_config(name, checked, max_batch_size=max_batch_size))
    return write_models(repository, [*models, ensemble])


def _step_model(step: CheckedStep, name: str, options: Options, *, max_batch_size: int) -> Model:
    """Return the model of a step, without the outputs that the pipeline drops."""
    used = [output for output in step.signature.outputs if output.alias in step.step.output_map]
    try:
        signature = replace(step.signature, outputs=used)
        return _model_of(step.version, check_name(name), signature, options, max_batch_size=max_batch_size)
    except (PublishError, TritonError) as error:
        raise type(error)(f'step "{step.name}": {error}') from error


def _model_of(version: Path, name: str, signature: Signature, options: Options, *, max_batch_size: int) -> Model:
    """Return the model that runs a signature of a SavedModel."""
    number = int(version.resolve().name) if version.resolve().name.isdecimal() else 1
    if number == 0:
        raise TritonError(f"{version} cannot run on Triton, which ignores version 0; bake it with another --version")
    if not signature.inputs:
        raise TritonError(f'signature "{signature.name}" cannot run on Triton: it has no inputs')
    warmup = _warmup_requests(version, signature, max_batch_size=max_batch_size)
    files = {data.file: data.data for request in warmup for data in request.values()}
    config = model_config(name, signature, options, warmup, max_batch_size=max_batch_size)
    return Model(name, number, config, files, version)


def _find_signature(version: Path, name: str | None) -> Signature:
    signatures = {signature.name: signature for signature in read_signatures(version)}
    candidates = DEFAULT_SIGNATURES if name is None else (name,)
    for candidate in candidates:
        if candidate in signatures:
            return signatures[candidate]
    shown = ", ".join(f'"{each}"' for each in signatures)
    wanted = " or ".join(candidates)
    raise TritonError(f"{version} has no signature {wanted}; choose one with --signature-name: {shown}")


def _is_per_image(version: Path) -> bool:
    """Whether a SavedModel was baked for images, so that each row of its signatures is an image of its own."""
    return (version / RECIPE_FILE).is_file()


def _warmup_requests(version: Path, signature: Signature, *, max_batch_size: int) -> list[dict[str, InputData]]:
    """Return the inputs, by name, of warm-up requests that an instance runs before it serves: the goldens' requests.

    With a maximum batch size, each row becomes a request, because Triton does not join warm-up requests.
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
