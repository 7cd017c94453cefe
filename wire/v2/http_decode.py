"""Reads bodies of inference over HTTP: JSON, then the binary data of tensors if there is any; see `http_encode`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from savedmodel_bakery.wire.dtypes import DType
from savedmodel_bakery.wire.json.decode import decode_exact, read_response
from savedmodel_bakery.wire.json.parser import NO_LIMITS, JsonValue, ParseLimits, parse_json
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.v2.http_encode import HEADER_LENGTH
from savedmodel_bakery.wire.v2.infer import (
    BASE64,
    BINARY_DATA,
    BINARY_DATA_OUTPUT,
    BINARY_DATA_SIZE,
    CONTENT_TYPE,
    SIGNATURE_NAME,
    InferRequest,
    InferResponse,
    RequestedOutput,
    check_count,
    check_parameters,
    decode_content,
    read_flag,
    read_text,
)
from savedmodel_bakery.wire.v2.tensors import (
    BINARY_ONLY,
    SentTensor,
    decode_raw,
    of_dtype,
    read_shape,
    shown,
    to_dtype,
)

_MAX_DIGITS = 19


class _BinaryData:
    """The binary data of tensors that follows the JSON of a body."""

    def __init__(self, content: memoryview) -> None:
        self.rest = content

    def take(self, size: object, tensor: str) -> memoryview:
        """Return the data of the next tensor."""
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= len(self.rest):
            raise invalid_argument(
                f"the parameter {BINARY_DATA_SIZE} of {tensor} is {shown(size)}; must be a number of bytes, at most "
                f"the {len(self.rest)} that are left in the body"
            )
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


def decode_request(content: bytes, header_length: str | None, limits: ParseLimits = NO_LIMITS) -> InferRequest:
    """Read the body of a request (server role).

    The error for extensions that are not supported is UNIMPLEMENTED.

    `header_length` is the header `HEADER_LENGTH`. Binary data is used in place, so `content` stays in memory as long as
    the inputs. `limits` include memory for the values in JSON, which are decoded at once; binary data is decoded later.
    So the result does not refer to the parsed JSON.
    """
    text, data = _split(content, header_length)
    document = parse_json(text, limits)
    if not isinstance(document, dict):
        raise invalid_argument("the body of an inference request must be a JSON object")
    parameters = _parameters(document, "the request")
    if "inputs" not in document:
        raise invalid_argument('the request has no "inputs"; must be a list of tensors')
    inputs = [_read_tensor(entry, data, "input") for entry in _entries(document, "inputs")]
    if data.rest:
        raise invalid_argument(f"the body has {len(data.rest)} bytes after the binary data of its tensors")
    is_binary = read_flag(parameters, BINARY_DATA_OUTPUT, False, "the request")
    return InferRequest(
        inputs,
        read_text(document.get("id"), "the id of the request"),
        read_text(parameters.get(SIGNATURE_NAME), f"the parameter {SIGNATURE_NAME}"),
        [_read_output(entry, is_binary) for entry in _entries(document, "outputs")],
        is_binary,
    )


def decode_response(content: bytes, header_length: str | None) -> InferResponse:
    """Read the body of a response (client role), whose outputs may be binary data or JSON."""
    text, data = _split(content, header_length)
    document = read_response(text)
    outputs = [_read_tensor(entry, data, "output") for entry in _entries(document, "outputs")]
    return InferResponse(
        read_text(document.get("model_name"), "the model_name of the response"),
        read_text(document.get("model_version"), "the model_version of the response"),
        {output.name: output.decode() for output in outputs},
        read_text(document.get("id"), "the id of the response"),
    )


def _split(content: bytes, header_length: str | None) -> tuple[bytes, _BinaryData]:
    """Split a body into its JSON and the binary data after it."""
    if header_length is None:
        return content, _BinaryData(memoryview(b""))
    digits = header_length.strip()
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MAX_DIGITS or int(digits) > len(content):
        raise invalid_argument(
            f"the header {HEADER_LENGTH} is {shown(header_length)}; must be the length of the JSON in bytes, at most "
            f"that of the body, {len(content)}"
        )
    end = int(digits)
    return content[:end], _BinaryData(memoryview(content)[end:])


def _entries(document: Mapping[str, Any], name: str) -> list[Any]:
    entries = document.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise invalid_argument(f'"{name}" must be a list of objects')
    check_count(len(entries), name)
    return entries


def _parameters(entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid_argument(f"the parameters of {where} must be a JSON object")
    return parameters


def _name(entry: Mapping[str, Any], role: str) -> str:
    name = entry.get("name")
    if not isinstance(name, str):
        raise invalid_argument(f"an {role} has no name")
    return name


def _read_tensor(entry: Mapping[str, Any], data: _BinaryData, role: str) -> SentTensor:
    name = _name(entry, role)
    tensor = f"{role} {shown(name)}"
    parameters = _parameters(entry, tensor)
    check_parameters(parameters, tensor)
    dtype = to_dtype(entry.get("datatype"), tensor)
    shape = read_shape(entry.get("shape"), tensor)
    values = entry.get("data")
    if (values is None) == (BINARY_DATA_SIZE not in parameters):
        raise invalid_argument(f'{tensor} must have either "data" or the parameter {BINARY_DATA_SIZE}')
    if values is None:
        content = data.take(parameters[BINARY_DATA_SIZE], tensor)
        sent = SentTensor(name, tensor, dtype, shape, partial(decode_raw, content, dtype, shape, tensor))
    else:
        array = _decode_data(values, dtype, shape, tensor)
        sent = SentTensor(name, tensor, dtype, shape, lambda _on_size: array)
    return decode_content(sent, parameters)


def _decode_data(data: JsonValue, dtype: DType, shape: Sequence[int], tensor: str) -> np.ndarray:
    """Decode `data` to an array of one dimension: a list nested like the shape, or a flat one in row-major order.

    `tensor` is the tensor in words, for error messages.
    """
    datatype = of_dtype(dtype, tensor)
    if datatype in BINARY_ONLY:
        raise invalid_argument(f"{tensor} is {datatype}, which travels as binary data only, and has JSON data")
    array = decode_exact(data, dtype, tensor, datatype)
    if array.shape != tuple(shape) and array.shape != (math.prod(shape),):
        raise invalid_argument(
            f"{tensor} has data of shape {list(array.shape)}; its shape is {list(shape)}, so data must be nested like "
            f"that, or a flat list of {math.prod(shape)} values"
        )
    return array.reshape(-1)


def _read_output(entry: Mapping[str, Any], is_binary: bool) -> RequestedOutput:
    name = _name(entry, "output")
    tensor = f"output {shown(name)}"
    parameters = _parameters(entry, tensor)
    check_parameters(parameters, tensor)
    is_binary = read_flag(parameters, BINARY_DATA, is_binary, tensor)
    return RequestedOutput(name, is_binary, parameters.get(CONTENT_TYPE) == BASE64 and not is_binary)
