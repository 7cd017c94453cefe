"""The v2 protocol of `canned_server`, over HTTP and gRPC: with our server's extensions, or as a foreign server without.

Written by hand from the protocol, with numpy and plain protobuf, not with the codecs under test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np

from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.v2 import schema

HEADER_LENGTH = "Inference-Header-Content-Length"
DATATYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP32": "<f4",
    "FP64": "<f8",
    "BYTES": "O",
}
_NAMES = {np.dtype(code): name for name, code in DATATYPES.items()}
_OF_TENSORFLOW = {
    "DT_BOOL": "BOOL",
    "DT_UINT8": "UINT8",
    "DT_UINT64": "UINT64",
    "DT_INT8": "INT8",
    "DT_INT32": "INT32",
    "DT_INT64": "INT64",
    "DT_FLOAT": "FP32",
    "DT_DOUBLE": "FP64",
    "DT_STRING": "BYTES",
}
_STATES = {"AVAILABLE": "READY", "END": "UNAVAILABLE"}
_URL = re.compile(r"/v2/models/([^/]+)(?:/versions/(\d+))?(/infer|/config|/ready|)")


@dataclass
class V2:
    """How the server speaks v2.

    Attributes:
        is_ours: whether it has our extensions: binary data, all signatures in the configuration, and an index.
        is_routed: whether a gateway before it routes URLs other than those of models.
        requests: path or method of each request so far.
        signature_names: the parameter `signature_name` of each inference so far; None without it.
    """

    is_ours: bool = True
    is_routed: bool = True
    requests: list[str] = field(default_factory=list)
    signature_names: list[str | None] = field(default_factory=list)


class NotRoutedError(Exception):
    """The gateway has no route for a URL."""


class Tensor(NamedTuple):
    name: str
    datatype: str
    shape: list[int]
    array: np.ndarray


def pack(array: np.ndarray) -> bytes:
    if array.dtype == object:
        return b"".join(len(item).to_bytes(4, "little") + item for item in array.ravel().tolist())
    return array.tobytes()


def unpack(content: bytes, datatype: str, shape: list[int]) -> np.ndarray:
    if datatype != "BYTES":
        return np.frombuffer(content, DATATYPES[datatype]).reshape(shape)
    items = []
    while content:
        end = 4 + int.from_bytes(content[:4], "little")
        items.append(content[4:end])
        content = content[end:]
    return np.array([*items, None], object)[:-1].reshape(shape)


def run(peer: Any, name: str, version: int | None, signature: str | None, inputs: Mapping[str, Any]) -> Any:
    """Return the outputs and the version that ran."""
    peer.v2.signature_names.append(signature)
    model, found = peer.find(name, version, None)
    if (signature or "serving_default") not in model.signatures:
        raise StatusError(Code.FAILED_PRECONDITION, f'Serving signature key "{signature}" not found.')
    outputs = model.run(signature or "serving_default", inputs)
    tensors = [Tensor(alias, _NAMES[array.dtype], list(array.shape), array) for alias, array in outputs.items()]
    return tensors, found


def metadata(peer: Any, name: str, version: int | None) -> dict[str, Any]:
    model, found = peer.find(name, version, None)
    default = model.signatures["serving_default"]

    def tensors(role: str) -> list[dict[str, Any]]:
        return [
            {
                "name": alias,
                "datatype": _OF_TENSORFLOW[tensor["dtype"]],
                "shape": [int(dim["size"]) for dim in tensor["tensor_shape"]["dim"]],
            }
            for alias, tensor in default[role].items()
        ]

    return {"name": name, "versions": [str(found)], "inputs": tensors("inputs"), "outputs": tensors("outputs")}


def config(peer: Any, name: str, version: int | None) -> dict[str, Any]:
    text = json.dumps(peer.metadata(name, version, None))
    return {"name": name, "parameters": {"tensorflow_serving_metadata": {"string_value": text}}}


def index(peer: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "version": str(row["version"]),
            "state": _STATES[row["state"]],
            "reason": row["status"]["error_message"],
        }
        for name in peer.model_names()
        for row in peer.status(name, None)["model_version_status"]
    ]


def http_answer(peer: Any, path: str, header_length: str | None, body: bytes) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of the response to a request whose path starts with /v2."""
    peer.v2.requests.append(path)
    if not peer.v2.is_routed and not path.startswith("/v2/models/"):
        raise NotRoutedError
    if path == "/v2":
        return _json({"name": "canned", "extensions": ["binary_tensor_data"] if peer.v2.is_ours else []})
    if path == "/v2/repository/index" and peer.v2.is_ours:
        return _json(index(peer))
    match = _URL.fullmatch(path)
    if match is None or (match[3] == "/config" and not peer.v2.is_ours):
        raise StatusError(Code.NOT_FOUND, "")
    name, version = unquote(match[1]), int(match[2]) if match[2] else None
    if match[3] == "/infer":
        return _http_infer(peer, name, version, body, int(header_length or len(body)))
    if match[3] == "/ready":
        peer.find(name, version, None)
        return b"", {}
    return _json((config if match[3] else metadata)(peer, name, version))


def _http_infer(
    peer: Any, name: str, version: int | None, body: bytes, header_length: int
) -> tuple[bytes, dict[str, str]]:
    request, data = json.loads(body[:header_length]), body[header_length:]
    if data and not peer.v2.is_ours:
        raise invalid_argument("JSON decode error")
    inputs = {}
    for entry in request["inputs"]:
        if "data" in entry:
            values = [item.encode() if isinstance(item, str) else item for item in entry["data"]]
            flat = np.array([*values, None], object)[:-1].astype(DATATYPES[entry["datatype"]])
            inputs[entry["name"]] = flat.reshape(entry["shape"])
        else:
            size = entry["parameters"]["binary_data_size"]
            inputs[entry["name"]] = unpack(data[:size], entry["datatype"], entry["shape"])
            data = data[size:]
    parameters = request.get("parameters", {})
    tensors, found = run(peer, name, version, parameters.get("signature_name"), inputs)
    head = {"model_name": name, "model_version": str(found)}
    if not parameters.get("binary_data_output"):
        outputs = [{**_head(tensor), "data": _as_json(tensor.array)} for tensor in tensors]
        return _json({**head, "outputs": outputs})
    pieces = [pack(tensor.array) for tensor in tensors]
    outputs = [
        {**_head(tensor), "parameters": {"binary_data_size": len(piece)}}
        for tensor, piece in zip(tensors, pieces, strict=True)
    ]
    text, _ = _json({**head, "outputs": outputs})
    return b"".join([text, *pieces]), {HEADER_LENGTH: str(len(text)), "Content-Type": "application/octet-stream"}


def _head(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}


def _as_json(array: np.ndarray) -> list[Any]:
    return [item.decode() if isinstance(item, bytes) else item for item in array.ravel().tolist()]


def _json(document: object) -> tuple[bytes, dict[str, str]]:
    return json.dumps(document).encode(), {"Content-Type": "application/json"}


def grpc_methods(peer: Any) -> dict[str, Callable[[Any], Any]]:
    """Return what answers each method's request."""

    def spec_of(request: Any) -> tuple[str, int | None]:
        return request.name, int(request.version) if request.version else None

    def infer(request: Any) -> Any:
        inputs = {
            entry.name: unpack(content, entry.datatype, list(entry.shape))
            for entry, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        version = int(request.model_version) if request.model_version else None
        signature = request.parameters["signature_name"].string_param or None
        tensors, found = run(peer, request.model_name, version, signature, inputs)
        response = schema.ModelInferResponse(model_name=request.model_name, model_version=str(found))
        for tensor in tensors:
            response.outputs.add(**_head(tensor))
            response.raw_output_contents.append(pack(tensor.array))
        return response

    def ours(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def call(request: Any) -> Any:
            if not peer.v2.is_ours:
                raise StatusError(Code.UNIMPLEMENTED, "Method not found!")
            return answer(request)

        return call

    def ready(request: Any) -> Any:
        peer.find(*spec_of(request), None)
        return schema.ModelReadyResponse(ready=True)

    def noted(name: str, answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda request: (peer.v2.requests.append(name), answer(request))[1]

    answers = {
        "ModelInfer": infer,
        "ModelMetadata": lambda request: schema.ModelMetadataResponse(**metadata(peer, *spec_of(request))),
        "ModelConfig": ours(lambda request: schema.ModelConfigResponse(config=config(peer, *spec_of(request)))),
        "ModelReady": ready,
        "RepositoryIndex": ours(lambda _: schema.RepositoryIndexResponse(models=index(peer))),
    }
    return {name: noted(name, answer) for name, answer in answers.items()}
