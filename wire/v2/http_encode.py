"""Writes bodies of inference over HTTP, in both roles: JSON, then the binary data of tensors if there is any."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pybase64

from savedmodel_bakery.wire.dtypes import STRING, DType, as_bytes, object_array, of_array
from savedmodel_bakery.wire.json.encode import quote_bytes
from savedmodel_bakery.wire.json.predict_response import response_size as json_size
from savedmodel_bakery.wire.status import invalid_argument
from savedmodel_bakery.wire.tensors import Tensor
from savedmodel_bakery.wire.v2.infer import (
    BASE64,
    BINARY_DATA,
    BINARY_DATA_OUTPUT,
    BINARY_DATA_SIZE,
    CONTENT_TYPE,
    SIGNATURE_NAME,
    InferResponse,
    RequestedOutput,
)
from savedmodel_bakery.wire.v2.tensors import BINARY_ONLY, encode_raw, of_dtype, raw_size, shown

HEADER_LENGTH = "Inference-Header-Content-Length"
"""The HTTP header with the length of the JSON, if binary data follows it."""

_SLICE = 2**14  # elements per step, so that other threads are blocked for milliseconds only
_BINARY_COPIES = 2  # in pieces, and joined


class Body(NamedTuple):
    """A body to send."""

    content: bytes
    header_length: int | None  # of `HEADER_LENGTH`; None if all of the body is JSON

    @property
    def content_type(self) -> str:
        """The header `Content-Type`."""
        return "application/json" if self.header_length is None else "application/octet-stream"


def encode_request(
    inputs: Mapping[str, np.ndarray], *, signature_name: str = "", outputs: Sequence[str] = (), binary: bool = True
) -> Body:
    """Write the body of a request (client role).

    Strings are `S`, `U` (sent as UTF-8) or object arrays of bytes and str. `signature_name` is empty for the server's
    default, and for servers without signatures; `outputs` is empty for all. `binary` sends all inputs as binary data,
    and requests all outputs as such. Otherwise JSON: for servers without the extension. Strings that are not UTF-8 are
    then sent in base64, with MLServer's content type.
    """
    head: dict[str, Any] = {}
    parameters: dict[str, Any] = {BINARY_DATA_OUTPUT: True} if binary else {}
    if signature_name:
        parameters[SIGNATURE_NAME] = signature_name
    if parameters:
        head["parameters"] = parameters
    if outputs:
        head["outputs"] = [
            {"name": name, **({"parameters": {BINARY_DATA: True}} if binary else {})} for name in outputs
        ]
    pieces: list[Any] = []
    entries = []
    for name, array in inputs.items():
        if binary:
            entries.append(_encode_tensor(name, Tensor(array, of_array(array)), "input", pieces))
        else:
            entries.append(_encode_json_input(name, array))
    text = _with_member(head, "inputs", b"[" + b",".join(entries) + b"]")
    return Body(b"".join([text, *pieces]), len(text)) if binary else Body(text, None)


def encode_response(response: InferResponse, requested: Sequence[RequestedOutput]) -> Body:
    """Write the body of a response (server role); `requested` says how, in the order of the response."""
    head = {"model_name": response.model_name, "model_version": response.model_version}
    if response.request_id:
        head["id"] = response.request_id
    pieces: list[Any] = []
    entries = []
    for output in requested:
        tensor, target = response.outputs[output.name], pieces if output.is_binary else None
        entries.append(_encode_tensor(output.name, tensor, "output", target, as_base64=output.is_base64))
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


def _encode_tensor(name: str, tensor: Tensor, role: str, pieces: list[Any] | None, *, as_base64: bool = False) -> bytes:
    """Write the JSON of a tensor; append its binary data to `pieces`, or write its values as JSON if that is None."""
    array, dtype, shape = tensor
    title = f"{role} {shown(name)}"
    head: dict[str, Any] = {
        "name": name,
        "datatype": of_dtype(dtype, title),
        "shape": list(array.shape if shape is None else shape),
    }
    if pieces is not None:
        pieces.append(encode_raw(array, dtype))
        head["parameters"] = {BINARY_DATA_SIZE: len(pieces[-1])}
        return json.dumps(head, separators=(",", ":")).encode()
    if as_base64:
        head["parameters"] = {CONTENT_TYPE: BASE64}
    return _with_member(head, "data", _encode_data(array, dtype, title, as_base64=as_base64))


def _encode_data(array: np.ndarray, dtype: DType, tensor: str, *, as_base64: bool = False) -> bytes:
    """Write `data` as a flat list.

    Strings are written as they are, valid UTF-8 or not, as Triton writes them. NaN and infinity are `NaN`, `Infinity`
    and `-Infinity`.
    """
    datatype = of_dtype(dtype, tensor)
    if datatype in BINARY_ONLY:
        raise invalid_argument(
            f"{tensor} is {datatype}, which travels as binary data only: request it with the parameter binary_data"
        )
    flat = array.reshape(-1)
    if dtype is STRING:
        quoted = map(pybase64.b64encode_as_string, flat) if as_base64 else None
        texts = (f'"{text}"' for text in quoted) if quoted else map(quote_bytes, flat)
        return b"[" + ",".join(texts).encode("latin-1") + b"]"
    slices = (flat[start : start + _SLICE].tolist() for start in range(0, len(flat), _SLICE))
    return b"[" + b",".join(json.dumps(part, separators=(",", ":"))[1:-1].encode() for part in slices) + b"]"


def _encode_json_input(name: str, array: np.ndarray) -> bytes:
    """Write the JSON of an input for a server without binary data."""
    dtype = of_array(array)
    tensor = f"input {shown(name)}"
    datatype = of_dtype(dtype, tensor)
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
    if dtype is not STRING:
        return _encode_tensor(name, Tensor(array, dtype), "input", None)
    strings = object_array([as_bytes(item) for item in array.ravel().tolist()])
    as_base64 = False
    try:
        for string in strings:
            string.decode()
    except UnicodeDecodeError:
        as_base64 = True
    return _encode_tensor(name, Tensor(strings, dtype, array.shape), "input", None, as_base64=as_base64)


def _with_member(head: Mapping[str, Any], name: str, value: bytes) -> bytes:
    """Return a JSON object with one more member, whose value is JSON already."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return text[:-1] + (b"," if head else b"") + f'"{name}":'.encode() + value + b"}"
