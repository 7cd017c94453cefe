"""Calls that the v2 protocol or Triton's extensions of it define, and that the server does not offer."""

from __future__ import annotations

from typing import NoReturn

from savedmodel_bakery.serving.v2.codec import MODEL_PATH
from savedmodel_bakery.wire.status import Code, StatusError

_LOAD = (
    "models cannot be loaded or unloaded through the v2 protocol: use HandleReloadConfigRequest of "
    "tensorflow.serving.ModelService, or publish a new version"
)
_SHARED_MEMORY = "shared memory is not supported: send tensors in the message"
_STATISTICS = "statistics are not supported: the Prometheus page of --monitoring_config_file has the server's metrics"
_TRACING = "the trace and log settings of the v2 protocol are not supported"

PATHS = {
    r"/v2/repository/models/[^/]+/(?:load|unload)": _LOAD,
    rf"{MODEL_PATH}/stats": _STATISTICS,
    rf"{MODEL_PATH}/generate(?:_stream)?": "generate is not supported: use infer",
    rf"(?:{MODEL_PATH}|/v2)/trace/setting": _TRACING,
    r"/v2/logging": _TRACING,
    r"/v2/(?:system|cuda)sharedmemory/.*": _SHARED_MEMORY,
}
"""The reason why a URL is not offered, by its path."""

METHODS = {
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
"""The reason why a method of gRPC is not offered, by its name."""


def refuse(reason: str, *_: object) -> NoReturn:
    """Raise UNIMPLEMENTED."""
    raise StatusError(Code.UNIMPLEMENTED, reason)
