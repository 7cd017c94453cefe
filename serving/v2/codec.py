"""URLs and calls of the v2 protocol, bodies of its requests over HTTP, and its small messages over gRPC."""

from __future__ import annotations

import json
import zlib
from functools import partial
from typing import Any, NoReturn
from urllib.parse import parse_qs

from google.protobuf import json_format

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.admission.parsing import charge_unpacked, unpack_all
from savedmodel_bakery.serving.call.http import Request, Response
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument
from savedmodel_bakery.wire.v2 import schema
from savedmodel_bakery.wire.v2.infer import SIGNATURE_NAME
from savedmodel_bakery.wire.v2.tensors import shown

MODEL_PATH = r"/v2/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+))?"
"""Matches the path of a model or of one of its versions."""

_LOAD = (
    "models cannot be loaded or unloaded through the v2 protocol: use HandleReloadConfigRequest of "
    "tensorflow.serving.ModelService, or publish a new version"
)
_SHARED_MEMORY = "shared memory is not supported: send tensors in the message"
_STATISTICS = "statistics are not supported: the Prometheus page of --monitoring_config_file has the server's metrics"
_TRACING = "the trace and log settings of the v2 protocol are not supported"

UNSUPPORTED_PATHS = {
    r"/v2/repository/models/[^/]+/(?:load|unload)": _LOAD,
    rf"{MODEL_PATH}/stats": _STATISTICS,
    rf"{MODEL_PATH}/generate(?:_stream)?": "generate is not supported: use infer",
    rf"(?:{MODEL_PATH}|/v2)/trace/setting": _TRACING,
    r"/v2/logging": _TRACING,
    r"/v2/(?:system|cuda)sharedmemory/.*": _SHARED_MEMORY,
}
"""The reason why the server does not offer a URL that the v2 protocol or Triton's extensions define, by its path."""

UNSUPPORTED_METHODS = {
    "CudaSharedMemoryRegister": _SHARED_MEMORY,
    "CudaSharedMemoryStatus": _SHARED_MEMORY,
    "CudaSharedMemoryUnregister": _SHARED_MEMORY,
    "LogSettings": _TRACING,
    "ModelStatistics": _STATISTICS,
    "ModelStreamInfer": "ModelStreamInfer is not supported: use ModelInfer",
    "RepositoryModelLoad": _LOAD,
    "RepositoryModelUnload": _LOAD,
    "SystemSharedMemoryRegister": _SHARED_MEMORY,
    "SystemSharedMemoryStatus": _SHARED_MEMORY,
    "SystemSharedMemoryUnregister": _SHARED_MEMORY,
    "TraceSetting": _TRACING,
}
"""The reason why the server does not offer a method over gRPC, by its name."""

_ENCODINGS = ("gzip", "deflate")


def read_body(request: Request, context: RequestContext, max_unpacked_bytes: int) -> bytes:
    """Return the body of a request, unpacked if it is compressed with gzip or deflate.

    Raises:
        StatusError: INVALID_ARGUMENT if it is damaged or compressed otherwise, RESOURCE_EXHAUSTED if it is too large.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "identity":
        return request.body
    if encoding not in _ENCODINGS:
        raise invalid_argument(f"unknown Content-Encoding {shown(encoding)}: must be {' or '.join(_ENCODINGS)}")
    try:
        return unpack_all(request.body, limit=max_unpacked_bytes, before_step=partial(charge_unpacked, context))
    except zlib.error as error:
        raise invalid_argument(f"the body is not valid {encoding}: {error}") from error


def read_query(request: Request) -> str:
    """Return the signature that the query of a URL names; empty for the default signature."""
    query = request.target.partition("#")[0].partition("?")[2]
    return parse_qs(query, errors="surrogateescape").get(SIGNATURE_NAME, [""])[0]


def read_index_request(body: bytes) -> bool:
    """Return whether the body of a request for the repository's index requests only models that are ready."""
    try:
        document = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise invalid_argument(f"the body is not valid JSON: {error}") from error
    ready = document.get("ready", False) if isinstance(document, dict) else None
    if not isinstance(ready, bool):
        raise invalid_argument('the body must be a JSON object, whose "ready" is true or false')
    return ready


def json_response(value: object, status: int = 200) -> Response:
    """Return a response with a JSON value."""
    return Response(status, json.dumps(value, separators=(",", ":")).encode())


def message(message_class: Any, value: dict[str, Any]) -> Any:
    """Make a message from its JSON form; members without a field, such as `parameters` of metadata, are left out."""
    return json_format.ParseDict(value, message_class(), ignore_unknown_fields=True, descriptor_pool=schema.POOL)


def refuse(reason: str, *_: object) -> NoReturn:
    """Raise UNIMPLEMENTED."""
    raise StatusError(Code.UNIMPLEMENTED, reason)
