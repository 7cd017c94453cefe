"""REST response bodies for errors, model status and model metadata (server role).

Status and metadata are protobuf's JSON format with the field names of the proto files and all default values.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.json.encode import quote


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
