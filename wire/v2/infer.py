"""Requests and responses of inference as plain values, and the parameters that both ports understand.

Source: "Inference" of the Open Inference Protocol, and Triton's extensions "parameters" and "binary tensor data".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, object_array
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.tensors import Tensor
from savedmodel_bakery.wire.v2.tensors import Hook, SentTensor, shown

SIGNATURE_NAME = "signature_name"
"""The request parameter, and the query of metadata's URL, that chooses a signature."""

TENSORFLOW_SERVING_METADATA = "tensorflow_serving_metadata"
"""The parameter of a model's configuration in which our server describes all signatures, as its REST API does."""

BINARY_TENSOR_DATA = "binary_tensor_data"
"""Triton's name of the extension "binary tensor data"."""

MAX_TENSORS = 10_000
"""Inputs and requested outputs of a request, and parameters of each: an empty input has two bytes over gRPC, but needs
a thousand to be read."""

BINARY_DATA, BINARY_DATA_OUTPUT, BINARY_DATA_SIZE = "binary_data", "binary_data_output", "binary_data_size"
CONTENT_TYPE, BASE64 = "content_type", "base64"
"""MLServer's parameter of a tensor whose elements are in base64."""


@dataclass(frozen=True)
class RequestedOutput:
    """A requested output."""

    name: str
    is_binary: bool = False  # over HTTP: return it as binary data
    is_base64: bool = False  # in JSON: return its elements in base64 (MLServer's `content_type`)


@dataclass(frozen=True)
class InferRequest:
    """A request for inference; see `SentTensor` for the values of its inputs."""

    inputs: Sequence[SentTensor] = field(repr=False)  # in the order of the message; names may be repeated
    request_id: str = ""  # returned with the response; empty for none
    signature_name: str = ""  # empty for the default signature
    outputs: Sequence[RequestedOutput] = ()  # empty for all
    is_binary: bool = False  # over HTTP: return outputs as binary data if `outputs` is empty


@dataclass(frozen=True)
class InferResponse:
    """The response to a request for inference."""

    model_name: str
    model_version: str  # a number for our servers; others may have another text, or none
    outputs: Mapping[str, Tensor] = field(repr=False)  # in the order of the message
    request_id: str = ""


def check_count(count: int, role: str) -> None:
    """Refuse more than `MAX_TENSORS` inputs, outputs or parameters in a part of a message."""
    if count > MAX_TENSORS:
        raise invalid_argument(f"the message has {count} {role}; at most {MAX_TENSORS} are allowed")


def read_text(value: object, field_name: str) -> str:
    """Return an optional string of a message."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise invalid_argument(f"{field_name} is {shown(value)}; must be a string")
    return value


def read_flag(parameters: Mapping[str, Any], name: str, default: bool, where: str) -> bool:
    """Return a boolean parameter of a request or a tensor."""
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise invalid_argument(f"the parameter {name} of {where} is {shown(value)}; must be true or false")
    return value


def check_parameters(parameters: Mapping[str, Any], tensor: str) -> None:
    """Refuse shared memory and classification, extensions that are not supported, with UNIMPLEMENTED."""
    if any(name.startswith("shared_memory_") for name in parameters):
        raise StatusError(
            Code.UNIMPLEMENTED, f"{tensor} is in shared memory, which is not supported: send its values in the message"
        )
    if parameters.get("classification"):
        raise StatusError(
            Code.UNIMPLEMENTED,
            f"{tensor} is requested with the parameter classification, which is not supported: request the output "
            f"itself, or a signature that returns labels, by the parameter {SIGNATURE_NAME}",
        )


def decode_content(sent: SentTensor, parameters: Mapping[str, Any]) -> SentTensor:
    """Return a tensor whose elements are those of `sent`, decoded from base64 if its parameters say so."""
    if parameters.get(CONTENT_TYPE) != BASE64:
        return sent
    if sent.dtype is not STRING:
        raise invalid_argument(f"{sent.tensor} has the content_type {BASE64}, but is not BYTES")

    def values(on_size: Hook) -> np.ndarray:
        encoded = sent.values(on_size)
        return object_array([_decode_base64(item, index, sent.tensor) for index, item in enumerate(encoded)])

    return sent._replace(values=values)


def _decode_base64(item: bytes, index: int, tensor: str) -> bytes:
    try:
        return pybase64.b64decode(item, validate=True)
    except ValueError as error:
        raise invalid_argument(f"{tensor} is not valid base64 at element {index}: {error}") from error
