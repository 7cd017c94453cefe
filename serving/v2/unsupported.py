"""The errors of calls that the v2 protocol or Triton's extensions of it define, and that the server does not offer."""

from __future__ import annotations

from savedmodel_bakery.wire.status import Code, StatusError

LOAD = (
    "models cannot be loaded or unloaded through the v2 protocol: use HandleReloadConfigRequest of "
    "tensorflow.serving.ModelService, or publish a new version"
)
STREAM = "ModelStreamInfer is not supported: use ModelInfer"
SHARED_MEMORY = "shared memory is not supported: send tensors in the message"
STATISTICS = "statistics are not supported: the Prometheus page of --monitoring_config_file has the server's metrics"
TRACING = "the trace and log settings of the v2 protocol are not supported"
GENERATE = "generate is not supported: use infer"


def unimplemented(reason: str) -> StatusError:
    """Return an UNIMPLEMENTED error."""
    return StatusError(Code.UNIMPLEMENTED, reason)
