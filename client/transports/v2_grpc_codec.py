"""Encodes the requests of the v2 protocol as gRPC messages and decodes the responses. Sends nothing."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from savedmodel_bakery.client.transports import v2_flows
from savedmodel_bakery.client.transports.transport import decoding_response, encoding_request
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire.message_pool import Method
from savedmodel_bakery.wire.v2 import grpc as messages
from savedmodel_bakery.wire.v2 import schema
from savedmodel_bakery.wire.v2.infer import InferResponse


def encode_request(request: v2_flows.Request) -> tuple[str, bytes]:
    """Return the path of a request's method, and the serialized message.

    Raises:
        RequestRefusedError: a value cannot be encoded.
    """
    method = _method(request)
    if isinstance(request, v2_flows.Infer):
        spec, call = request.call.spec, request.call
        with encoding_request():
            message = messages.encode_request(
                spec.name,
                call.inputs,
                version=spec.version,
                signature_name=request.signature_name,
                outputs=call.output_filter,
            )
            return method.path, message.SerializeToString()
    if isinstance(request, v2_flows.RepositoryIndex):
        return method.path, b""
    version = "" if request.spec.version is None else str(request.spec.version)
    return method.path, method.request(name=request.spec.name, version=version).SerializeToString()


def decode_response(request: v2_flows.Request, content: bytes) -> Any:
    """Decode the response to a request; see `v2_flows`.

    Raises:
        InvalidResponseError: the content is not a response to the request.
    """
    if isinstance(request, v2_flows.Infer):
        return decode_infer_response(content)
    response_type = _method(request).response
    try:
        message = response_type.FromString(content)
    except DecodeError as exc:
        raise _invalid(response_type, content) from exc
    document = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema.POOL)
    if isinstance(request, v2_flows.ModelConfig):
        return document.get("config", {})
    if isinstance(request, v2_flows.ModelReady):
        return {"ready": message.ready}
    return document.get("models", []) if isinstance(request, v2_flows.RepositoryIndex) else document


def decode_infer_response(content: bytes) -> InferResponse:
    """Decode a ModelInferResponse; see `decode_response`."""
    try:
        with decoding_response():
            return messages.decode_response(content)
    except DecodeError as exc:
        raise _invalid(schema.ModelInferResponse, content) from exc


def _method(request: v2_flows.Request) -> Method:
    name = type(request).__name__
    return schema.METHODS["ModelInfer" if isinstance(request, v2_flows.Infer) else name]


def _invalid(response_type: Any, content: bytes) -> InvalidResponseError:
    name = response_type.DESCRIPTOR.full_name
    return InvalidResponseError(f"the response of {len(content)} bytes is not a valid {name}")
