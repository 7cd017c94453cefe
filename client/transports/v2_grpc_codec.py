"""Encodes the requests of the v2 protocol as gRPC messages and decodes the responses. Sends nothing."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError

from savedmodel_bakery.client.transports import v2_flows
from savedmodel_bakery.client.transports.transport import decoding_response, encoding_request
from savedmodel_bakery.errors import InvalidResponseError
from savedmodel_bakery.wire.schema import Method
from savedmodel_bakery.wire.v2 import grpc as messages
from savedmodel_bakery.wire.v2 import schema

exchange = v2_flows.exchange


def method_of(request: v2_flows.Request) -> Method:
    """Return the method for a request."""
    return schema.METHODS[request.method]


def encode_request(request: v2_flows.Request) -> bytes:
    """Encode a request."""
    spec, call = request.spec, request.call
    if request.method == "RepositoryIndex":
        return b""
    with encoding_request():
        if call is None:
            version = "" if spec.version is None else str(spec.version)
            message = method_of(request).request(name=spec.name, version=version)
        else:
            message = messages.encode_request(
                spec.name,
                call.inputs,
                version=spec.version,
                signature_name=v2_flows.signature_parameter(call),
                outputs=call.output_filter,
            )
        content: bytes = message.SerializeToString()
        return content


def decode_response(request: v2_flows.Request, content: bytes) -> Any:
    """Decode the response to a request; see `v2_flows`."""
    response_type = method_of(request).response
    try:
        if request.method == "ModelInfer":
            with decoding_response():
                return messages.decode_response(content)
        message = response_type.FromString(content)
    except DecodeError as exc:
        name = response_type.DESCRIPTOR.full_name
        raise InvalidResponseError(f"the response of {len(content)} bytes is not a valid {name}") from exc
    document = MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=schema.POOL)
    if request.method == "ModelReady":
        return {"ready": message.ready}
    if request.method == "ModelConfig":
        return document.get("config", {})
    return document.get("models", []) if request.method == "RepositoryIndex" else document
