"""Bodies of inference over HTTP, in both roles: JSON, followed by the binary data of tensors if there is any.

Knows nothing of URLs and connections; the one header that matters is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from savedmodel_bakery.wire.dtypes import STRING, of_array
from savedmodel_bakery.wire.json.limits import NO_LIMITS, ParseLimits
from savedmodel_bakery.wire.json.parser import parse_json
from savedmodel_bakery.wire.json.predict_response import response_size as json_size
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import as_bytes, object_array
from savedmodel_bakery.wire.v2.datatypes import BINARY_ONLY, of_dtype, shown, to_dtype
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
    base64_decoded,
    check_count,
    check_parameters,
    is_base64,
    read_flag,
    read_signature_name,
    read_text,
)
from savedmodel_bakery.wire.v2.json_values import decode_data, encode_data
from savedmodel_bakery.wire.v2.tensors import SentTensor, decode_raw, encode_raw, raw_size, read_shape

HEADER_LENGTH = "Inference-Header-Content-Length"
"""The HTTP header with the length of the JSON, if binary data follows it."""

_MAX_DIGITS = 19
_BINARY_COPIES = 2  # in pieces, and joined


class Body(NamedTuple):
    """A body to send.

    Attributes:
        content: the whole body.
        header_length: the value of the header `HEADER_LENGTH`; None if all of the body is JSON.
    """

    content: bytes
    header_length: int | None

    @property
    def content_type(self) -> str:
        """The header `Content-Type`."""
        return "application/json" if self.header_length is None else "application/octet-stream"


class _BinaryData:
    """The binary data of tensors that follows the JSON of a body."""

    def __init__(self, content: memoryview) -> None:
        self._content = content

    def take(self, size: object, tensor: str) -> memoryview:
        """Return the data of the next tensor."""
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise invalid_argument(
                f"the parameter {BINARY_DATA_SIZE} of {tensor} is {shown(size)}; must be a number of bytes"
            )
        if size > len(self._content):
            raise invalid_argument(
                f"{tensor} has {size} bytes of binary data ({BINARY_DATA_SIZE}), but only {len(self._content)} are left"
                " in the body"
            )
        taken, self._content = self._content[:size], self._content[size:]
        return taken

    def check_end(self) -> None:
        """Check that all data is taken."""
        if self._content:
            raise invalid_argument(f"the body has {len(self._content)} bytes after the binary data of its tensors")


def decode_request(content: bytes, header_length: str | None, limits: ParseLimits = NO_LIMITS) -> InferRequest:
    """Read the body of a request (server role).

    Args:
        content: the body. Binary data is used in place, so it stays in memory as long as the inputs.
        header_length: the header `HEADER_LENGTH`; None without one.
        limits: of the parse of its JSON. They include memory for its values, which are decoded at once; binary data is
            decoded later. So the result does not refer to the parsed JSON.

    Raises:
        StatusError: INVALID_ARGUMENT if it is not such a body, or if values in JSON don't fit their datatype or shape;
            UNIMPLEMENTED for extensions that are not supported; or an error of `limits`.
    """
    text, data = _split(content, header_length)
    document = parse_json(text, limits)
    if not isinstance(document, dict):
        raise invalid_argument("the body of an inference request must be a JSON object")
    parameters = _parameters(document, "the request")
    if "inputs" not in document:
        raise invalid_argument('the request has no "inputs"; must be a list of tensors')
    inputs = [_read_tensor(entry, data, "input") for entry in _entries(document, "inputs")]
    data.check_end()
    is_binary = read_flag(parameters, BINARY_DATA_OUTPUT, False, "the request")
    return InferRequest(
        inputs,
        read_text(document.get("id"), "the id of the request"),
        read_signature_name(parameters),
        [_read_output(entry, is_binary) for entry in _entries(document, "outputs")],
        is_binary,
    )


def encode_request(
    inputs: Mapping[str, np.ndarray],
    *,
    signature_name: str = "",
    outputs: Sequence[str] = (),
    request_id: str = "",
    binary: bool = True,
) -> Body:
    """Write the body of a request (client role).

    Args:
        inputs: arrays by name, of any shape; strings as `S`, `U` (sent as UTF-8) or object arrays of bytes and str.
        signature_name: the signature to run; empty for the server's default, and for servers without signatures.
        outputs: which to return; empty for all.
        request_id: is returned with the response; empty for none.
        binary: send all inputs as binary data, and request all outputs as such. Otherwise JSON: for servers without the
            extension. Strings that are not UTF-8 are then sent in base64, with MLServer's content type.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that the protocol, or JSON, can't express; names the input.
    """
    head: dict[str, Any] = {"id": request_id} if request_id else {}
    parameters: dict[str, Any] = {BINARY_DATA_OUTPUT: True} if binary else {}
    if signature_name:
        parameters[SIGNATURE_NAME] = signature_name
    if parameters:
        head["parameters"] = parameters
    if outputs:
        head["outputs"] = [
            {"name": name, **({"parameters": {BINARY_DATA: True}} if binary else {})} for name in outputs
        ]
    pieces: list[Any] | None = [] if binary else None
    entries = [_encode_input(name, array, pieces) for name, array in inputs.items()]
    text = _with_member(head, "inputs", b"[" + b",".join(entries) + b"]")
    return Body(text, None) if pieces is None else Body(b"".join([text, *pieces]), len(text))


def encode_response(response: InferResponse, requested: Sequence[RequestedOutput]) -> Body:
    """Write the body of a response (server role).

    Args:
        response: the response; strings as object arrays of bytes.
        requested: how to write each output, in the order of the response.

    Raises:
        StatusError: INVALID_ARGUMENT for element types that the protocol, or JSON, can't express; names the output.
    """
    head = {"model_name": response.model_name, "model_version": response.model_version}
    if response.request_id:
        head["id"] = response.request_id
    pieces: list[Any] = []
    entries = []
    for output in requested:
        entries.append(_encode_output(response, output, pieces))
    text = _with_member(head, "outputs", b"[" + b",".join(entries) + b"]")
    if not any(output.is_binary for output in requested):
        return Body(text, None)
    return Body(b"".join([text, *pieces]), len(text))


def response_size(response: InferResponse, requested: Sequence[RequestedOutput]) -> int:
    """Return an estimate, rather too high, of the bytes of memory that `encode_response` needs."""
    binary = [output.name for output in requested if output.is_binary]
    as_json = {name: tensor for name, tensor in response.outputs.items() if name not in binary}
    raw = (raw_size(response.outputs[name].array, response.outputs[name].dtype) for name in binary)
    return json_size(as_json) + _BINARY_COPIES * sum(raw)


def decode_response(content: bytes, header_length: str | None) -> InferResponse:
    """Read the body of a response (client role), whose outputs may be binary data or JSON.

    Args:
        content: the body.
        header_length: the header `HEADER_LENGTH`; None without one.

    Raises:
        StatusError: INVALID_ARGUMENT if it is not such a body.
    """
    text, data = _split(content, header_length)
    try:
        document = json.loads(text.decode(errors="surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"the response is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid_argument("the response is not a JSON object")
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
        array = decode_data(values, dtype, shape, tensor)
        sent = SentTensor(name, tensor, dtype, shape, lambda _on_size: array)
    return base64_decoded(sent) if is_base64(parameters) else sent


def _read_output(entry: Mapping[str, Any], is_binary: bool) -> RequestedOutput:
    name = _name(entry, "output")
    tensor = f"output {shown(name)}"
    parameters = _parameters(entry, tensor)
    check_parameters(parameters, tensor)
    is_binary = read_flag(parameters, BINARY_DATA, is_binary, tensor)
    return RequestedOutput(name, is_binary, is_base64(parameters) and not is_binary)


def _encode_output(response: InferResponse, output: RequestedOutput, pieces: list[Any]) -> bytes:
    """Write the JSON of an output; append its binary data to `pieces`."""
    array, dtype, shape = response.outputs[output.name]
    tensor = f"output {shown(output.name)}"
    head: dict[str, Any] = {
        "name": output.name,
        "datatype": of_dtype(dtype, tensor),
        "shape": list(array.shape if shape is None else shape),
    }
    if output.is_binary:
        pieces.append(encode_raw(array, dtype))
        head["parameters"] = {BINARY_DATA_SIZE: len(pieces[-1])}
        return json.dumps(head, separators=(",", ":")).encode()
    if output.is_base64:
        head["parameters"] = {CONTENT_TYPE: BASE64}
    return _with_member(head, "data", encode_data(array, dtype, tensor, as_base64=output.is_base64))


def _encode_input(name: str, array: np.ndarray, pieces: list[Any] | None) -> bytes:
    """Write the JSON of an input; append its binary data to `pieces`, or write its values as JSON if that is None."""
    dtype = of_array(array)
    tensor = f"input {shown(name)}"
    datatype = of_dtype(dtype, tensor)
    head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
    if pieces is not None:
        pieces.append(encode_raw(array, dtype))
        head["parameters"] = {BINARY_DATA_SIZE: len(pieces[-1])}
        return json.dumps(head, separators=(",", ":")).encode()
    if datatype in BINARY_ONLY:
        raise invalid_argument(
            f"{tensor} is {datatype}, which travels as binary data only, and the server's extensions do not include "
            "binary_tensor_data: send it over gRPC"
        )
    if dtype.numpy.kind == "f" and not np.isfinite(array).all():
        raise invalid_argument(
            f"{tensor} has a value that JSON lacks, NaN or infinity, and the server's extensions do not include "
            "binary_tensor_data: send it over gRPC"
        )
    is_base64 = False
    if dtype is STRING:
        array = object_array([as_bytes(item) for item in array.ravel().tolist()])
        is_base64 = not all(map(_is_utf8, array))
        if is_base64:
            head["parameters"] = {CONTENT_TYPE: BASE64}
    return _with_member(head, "data", encode_data(array, dtype, tensor, as_base64=is_base64))


def _with_member(head: Mapping[str, Any], name: str, value: bytes) -> bytes:
    """Return a JSON object with one more member, whose value is JSON already."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return text[:-1] + (b"," if head else b"") + f'"{name}":'.encode() + value + b"}"


def _is_utf8(string: bytes) -> bool:
    try:
        string.decode()
    except UnicodeDecodeError:
        return False
    return True
