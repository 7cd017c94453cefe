"""Serialized requests of PredictionService and ModelService to values, and results to serialized responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from savedmodel_bakery.serving.inference.examples import Classifications, Result
from savedmodel_bakery.serving.inference.metadata import Metadata
from savedmodel_bakery.serving.inference.predict import DEFAULT_SIGNATURE
from savedmodel_bakery.serving.models.registry import VersionStatus
from savedmodel_bakery.serving.models.servable import Servable
from savedmodel_bakery.wire import messages
from savedmodel_bakery.wire.messages import ExamplesRequest, ModelSpec, MultiInferenceRequest
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.tensors import Tensor

# Each `decode_…` raises DecodeError for content that is not its message.
decode_predict = messages.parse_predict_request


class MetadataRequest(NamedTuple):
    """A GetModelMetadataRequest."""

    spec: ModelSpec | None
    fields: Sequence[str]


def decode_classify(content: bytes) -> ExamplesRequest:
    """Parse a ClassificationRequest."""
    return messages.read_examples_request(METHODS["Classify"].request.FromString(content))


def decode_regress(content: bytes) -> ExamplesRequest:
    """Parse a RegressionRequest."""
    return messages.read_examples_request(METHODS["Regress"].request.FromString(content))


def decode_multi_inference(content: bytes) -> MultiInferenceRequest:
    """Parse a MultiInferenceRequest."""
    return messages.read_multi_inference_request(METHODS["MultiInference"].request.FromString(content))


def decode_metadata(content: bytes) -> MetadataRequest:
    """Parse a GetModelMetadataRequest."""
    message = METHODS["GetModelMetadata"].request.FromString(content)
    return MetadataRequest(messages.read_model_spec(message), message.metadata_field)


def decode_status(content: bytes) -> ModelSpec | None:
    """Parse a GetModelStatusRequest, which is only a ModelSpec."""
    return messages.read_model_spec(METHODS["GetModelStatus"].request.FromString(content))


def encode_predict(servable: Servable, signature_name: str, outputs: Mapping[str, Tensor], *, packed: bool) -> bytes:
    """Serialize a PredictResponse.

    Args:
        servable: the version that answered.
        signature_name: as requested; empty for the default signature.
        outputs: by alias.
        packed: write values into `tensor_content` rather than typed fields.
    """
    response = messages.make_predict_response(_spec(servable, signature_name), outputs, packed=packed)
    content: bytes = response.SerializeToString()
    return content


def encode_classify(servable: Servable, signature_name: str, result: Classifications) -> bytes:
    """Serialize a ClassificationResponse."""
    response = messages.make_classification_response(_spec(servable, signature_name), result)
    content: bytes = response.SerializeToString()
    return content


def encode_regress(servable: Servable, signature_name: str, result: np.ndarray) -> bytes:
    """Serialize a RegressionResponse."""
    response = messages.make_regression_response(_spec(servable, signature_name), result)
    content: bytes = response.SerializeToString()
    return content


def encode_multi_inference(servable: Servable, signature_names: Sequence[str], results: Sequence[Result]) -> bytes:
    """Serialize a MultiInferenceResponse; names and results are in the order of the tasks."""
    response = messages.make_multi_inference_response([_spec(servable, name) for name in signature_names], results)
    content: bytes = response.SerializeToString()
    return content


def encode_metadata(metadata: Metadata) -> bytes:
    """Serialize a GetModelMetadataResponse."""
    content: bytes = messages.make_metadata_response(*metadata).SerializeToString()
    return content


def encode_status(versions: Sequence[VersionStatus]) -> bytes:
    """Serialize a GetModelStatusResponse."""
    content: bytes = messages.make_status_response(versions).SerializeToString()
    return content


def _spec(servable: Servable, signature_name: str) -> ModelSpec:
    return ModelSpec(servable.name, servable.version, None, signature_name or DEFAULT_SIGNATURE)
