"""Makes the responses of TensorFlow Serving's API from arrays, and the JSON of those that are not predictions.

The JSON of status and metadata is protobuf's, with the field names of the proto files and all default values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
from google.protobuf import json_format

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.attachments import TensorMessage
from savedmodel_bakery.wire.json.encode import quote
from savedmodel_bakery.wire.messages import SIGNATURE_FIELD, ClassesAndScores, ModelSpec, write_spec
from savedmodel_bakery.wire.status import StatusError
from savedmodel_bakery.wire.tensors import Tensor


def make_predict_response(spec: ModelSpec, outputs: Mapping[str, Tensor], *, packed: bool) -> TensorMessage:
    """Make a PredictResponse; `packed` writes values into `tensor_content` rather than typed fields."""
    response = TensorMessage(schema.PredictResponse(), "outputs")
    write_spec(response.message.model_spec, spec)
    for alias, (array, dtype, shape) in outputs.items():
        response.add(alias, array, packed=packed, packed_strings=packed, dtype=dtype, shape=shape)
    return response


def make_classification_response(spec: ModelSpec, result: ClassesAndScores) -> Any:
    """Make a ClassificationResponse."""
    response = schema.ClassificationResponse()
    write_spec(response.model_spec, spec)
    _write_classifications(response.result, *result)
    return response


def make_regression_response(spec: ModelSpec, result: np.ndarray) -> Any:
    """Make a RegressionResponse from float32 [examples]."""
    response = schema.RegressionResponse()
    write_spec(response.model_spec, spec)
    _write_regressions(response.result, result)
    return response


def make_multi_inference_response(specs: Iterable[ModelSpec], results: Iterable[ClassesAndScores | np.ndarray]) -> Any:
    """Make a MultiInferenceResponse from the spec and the result of each task."""
    response = schema.MultiInferenceResponse()
    for spec, result in zip(specs, results, strict=True):
        entry = response.results.add()
        write_spec(entry.model_spec, spec)
        if isinstance(result, tuple):
            _write_classifications(entry.classification_result, *result)
        else:
            _write_regressions(entry.regression_result, result)
    return response


def make_metadata_response(name: str, version: int, signatures: Mapping[str, Any]) -> Any:
    """Make a GetModelMetadataResponse with SignatureDefs by name."""
    packed = schema.SignatureDefMap()
    for key, signature in signatures.items():
        packed.signature_def[key].CopyFrom(signature)
    response = schema.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = version
    response.metadata[SIGNATURE_FIELD].Pack(packed)
    return response


def make_status_response(versions: Iterable[tuple[int, int, StatusError | None]]) -> Any:
    """Make a GetModelStatusResponse from (number, state, error) of each version."""
    response = schema.GetModelStatusResponse()
    for number, state, error in versions:
        entry = response.model_version_status.add(version=number, state=state)
        entry.status.error_code = int(error.code) if error else 0
        entry.status.error_message = error.text if error else ""
    return response


def _write_classifications(message: Any, classes: np.ndarray | None, scores: np.ndarray | None) -> None:
    """Fill a ClassificationResult; missing labels become empty strings, missing scores 0."""
    for labels, row in zip_longest([] if classes is None else classes, [] if scores is None else scores):
        result = message.classifications.add()
        for label, score in zip_longest(() if labels is None else labels, () if row is None else row):
            result.classes.add(label=(label or b"").decode(errors="replace"), score=score or 0.0)


def _write_regressions(message: Any, values: np.ndarray) -> None:
    for value in values.tolist():
        message.regressions.add(value=value)


def encode_error(message: str) -> bytes:
    """Write an error; surrogate escapes in the message become the bytes they stand for, which need not be UTF-8."""
    return f'{{\n    "error": {quote(message)}\n}}'.encode("utf-8", "surrogateescape")


def encode_status(response: Any) -> bytes:
    """Write a GetModelStatusResponse."""
    return _text_of(response).encode()


def encode_metadata(response: Any) -> bytes:
    """Write a GetModelMetadataResponse, with `signature_def` unpacked and without its `@type`."""
    fields = []
    for name, packed in sorted(response.metadata.items()):
        content = schema.SignatureDefMap.FromString(packed.value)
        fields.append(f"{quote(name)}: {_text_of(content)}")
    model_spec = _text_of(response.model_spec)
    return f'{{\n"model_spec":{model_spec},\n"metadata": {{{",".join(fields)}}}\n}}\n'.encode()


def _text_of(message: Any) -> str:
    text: str = json_format.MessageToJson(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        indent=1,
        ensure_ascii=False,
        descriptor_pool=schema.POOL,
    )
    return text + "\n"
