"""ModelInferRequest and ModelInferResponse, in both roles. Does no I/O.

Values are raw (`raw_input_contents`, `raw_output_contents`), or typed (`contents`); a request must not mix both. Large
raw values are joined to the serialized message once, and a parsed message refers to them in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from savedmodel_bakery.wire.attachments import LARGE_BYTES, serialize_with
from savedmodel_bakery.wire.dtypes import STRING, DType, object_array, of_array
from savedmodel_bakery.wire.encoding import DELIMITED, message_fields, varint
from savedmodel_bakery.wire.json.decode import narrow
from savedmodel_bakery.wire.status import StatusError, invalid_argument
from savedmodel_bakery.wire.v2 import schema
from savedmodel_bakery.wire.v2.infer import (
    MAX_TENSORS,
    SIGNATURE_NAME,
    InferRequest,
    InferResponse,
    RequestedOutput,
    check_count,
    check_parameters,
    decode_content,
    read_text,
)
from savedmodel_bakery.wire.v2.tensors import (
    BINARY_ONLY,
    Hook,
    SentTensor,
    decode_raw,
    encode_raw,
    of_dtype,
    read_shape,
    shown,
    to_dtype,
)

_RAW_INPUTS = schema.ModelInferRequest.DESCRIPTOR.fields_by_name["raw_input_contents"].number
_RAW_OUTPUTS = schema.ModelInferResponse.DESCRIPTOR.fields_by_name["raw_output_contents"].number

# "InferTensorContents" in the protocol's proto file.
_CONTENTS = {
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    **{name: f"{name.lower()}_contents" for name in ("BOOL", "INT64", "UINT64", "FP32", "FP64", "BYTES")},
}
_WIDE = {"int_contents": np.dtype(np.int32), "uint_contents": np.dtype(np.uint32)}


class RawMessage:
    """A message and its raw contents, which belong to its field `number` but are not copied into it."""

    def __init__(self, message: Any, number: int, contents: Sequence[Any]) -> None:
        self.message = message
        self._tag = varint(number << 3 | DELIMITED)
        self._contents = contents

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that protobuf messages have
        """Serialize the message with its raw contents."""
        fields: list[Any] = []
        for content in self._contents:
            fields += [self._tag, varint(len(content)), content]
        return serialize_with(self.message, fields)


class ParsedRequest(NamedTuple):
    """A ModelInferRequest and its raw contents, which are not part of the message; large ones are used in place."""

    message: Any
    raw: Sequence[Any]


def parse_request(content: bytes) -> ParsedRequest:
    """Parse a serialized ModelInferRequest (server role)."""
    return ParsedRequest(*_parse(schema.ModelInferRequest, _RAW_INPUTS, "raw_input_contents", content))


def read_request(parsed: ParsedRequest) -> InferRequest:
    """Read a ModelInferRequest (server role). The error for extensions that are not supported is UNIMPLEMENTED."""
    message, raw = parsed
    if raw and len(raw) != len(message.inputs):
        raise invalid_argument(f"the request has {len(message.inputs)} inputs, but {len(raw)} raw_input_contents")
    check_count(len(message.inputs), "inputs")
    check_count(len(message.outputs), "outputs")
    parameters = _plain(message.parameters)
    return InferRequest(
        [_read_tensor(entry, raw[index] if raw else None, "input") for index, entry in enumerate(message.inputs)],
        message.id,
        read_text(parameters.get(SIGNATURE_NAME), f"the parameter {SIGNATURE_NAME}"),
        [_read_output(entry) for entry in message.outputs],
    )


def encode_request(
    model_name: str,
    inputs: Mapping[str, np.ndarray],
    *,
    version: int | None = None,
    signature_name: str = "",
    outputs: Sequence[str] = (),
) -> RawMessage:
    """Make a ModelInferRequest with raw contents (client role)."""
    message = schema.ModelInferRequest(model_name=model_name, model_version="" if version is None else str(version))
    if signature_name:
        message.parameters[SIGNATURE_NAME].string_param = signature_name
    contents = []
    for name, array in inputs.items():
        dtype = of_array(array)
        message.inputs.add(name=name, datatype=of_dtype(dtype, f"input {shown(name)}"), shape=array.shape)
        contents.append(encode_raw(array, dtype))
    for name in outputs:
        message.outputs.add(name=name)
    return RawMessage(message, _RAW_INPUTS, contents)


def encode_response(response: InferResponse) -> RawMessage:
    """Make a ModelInferResponse with raw contents (server role)."""
    message = schema.ModelInferResponse(
        model_name=response.model_name, model_version=response.model_version, id=response.request_id
    )
    contents = []
    for name, (array, dtype, shape) in response.outputs.items():
        datatype = of_dtype(dtype, f"output {shown(name)}")
        message.outputs.add(name=name, datatype=datatype, shape=array.shape if shape is None else shape)
        contents.append(encode_raw(array, dtype))
    return RawMessage(message, _RAW_OUTPUTS, contents)


def decode_response(content: bytes) -> InferResponse:
    """Parse a serialized ModelInferResponse (client role), whose outputs may be raw or typed."""
    message, raw = _parse(schema.ModelInferResponse, _RAW_OUTPUTS, "raw_output_contents", content)
    if raw and len(raw) != len(message.outputs):
        raise invalid_argument(f"the response has {len(message.outputs)} outputs, but {len(raw)} raw_output_contents")
    outputs = [
        _read_tensor(entry, raw[index] if raw else None, "output") for index, entry in enumerate(message.outputs)
    ]
    return InferResponse(
        message.model_name, message.model_version, {output.name: output.decode() for output in outputs}, message.id
    )


def _parse(message_class: Any, number: int, field: str, content: bytes) -> tuple[Any, Sequence[Any]]:
    """Return a message and its raw contents; if it is large, they stay in `content`."""
    if len(content) < LARGE_BYTES:
        message = message_class.FromString(content)
        return message, list(getattr(message, field))
    parts: list[memoryview] = []
    raw: list[memoryview] = []
    view = memoryview(content)
    try:
        for tag, start, body, end in islice(message_fields(view), 2 * MAX_TENSORS + 1):
            if tag == number << 3 | DELIMITED:
                raw.append(view[body:end])
            else:
                parts.append(view[start:end])
    except StatusError as error:
        raise DecodeError(error.message) from error
    check_count(len(parts), "inputs, outputs and parameters")
    check_count(len(raw), field)
    return message_class.FromString(b"".join(parts)), raw


def _plain(parameters: Any) -> dict[str, Any]:
    """Return the parameters of a message as Python's own values; those without a value are left out."""
    check_count(len(parameters), "parameters")
    choices = {name: parameters[name].WhichOneof("parameter_choice") for name in parameters}
    return {name: getattr(parameters[name], choice) for name, choice in choices.items() if choice}


def _read_tensor(entry: Any, raw: Any, role: str) -> SentTensor:
    tensor = f"{role} {shown(entry.name)}"
    parameters = _plain(entry.parameters)
    check_parameters(parameters, tensor)
    dtype = to_dtype(entry.datatype, tensor)
    shape = read_shape(entry.shape, tensor)
    if raw is None:
        values = partial(_typed_values, entry.contents, dtype, shape, tensor)
    elif entry.contents.ByteSize():  # MLServer sends empty contents beside the raw ones
        raise invalid_argument(f"{tensor} has contents, and the message has raw contents too; must have one of them")
    else:
        values = partial(decode_raw, raw, dtype, shape, tensor)
    return decode_content(SentTensor(entry.name, tensor, dtype, shape, values), parameters)


def _typed_values(contents: Any, dtype: DType, shape: Sequence[int], tensor: str, on_size: Hook) -> np.ndarray:
    datatype = of_dtype(dtype, tensor)
    if datatype in BINARY_ONLY:
        raise invalid_argument(f"{tensor} is {datatype}, which travels in raw contents only")
    field = _CONTENTS[datatype]
    values = getattr(contents, field)
    if len(values) != math.prod(shape):
        raise invalid_argument(
            f"{tensor} has {len(values)} values in {field}; shape {list(shape)} needs {math.prod(shape)}"
        )
    on_size()
    if dtype is STRING:
        return object_array(list(values))
    array = np.array(values, _WIDE.get(field, dtype.numpy))
    return narrow(array, dtype, tensor, datatype) if field in _WIDE else array


def _read_output(entry: Any) -> RequestedOutput:
    check_parameters(_plain(entry.parameters), f"output {shown(entry.name)}")
    return RequestedOutput(entry.name)
