"""The calls of TensorFlow Serving's PredictionService and ModelService over gRPC, and those of its profiler."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.serving.access.access import PROFILER
from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.call import Rpc
from savedmodel_bakery.serving.prediction_service import PredictionService
from savedmodel_bakery.serving.telemetry import metrics
from savedmodel_bakery.wire import messages, schema
from savedmodel_bakery.wire.schema import METHODS
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

Reload = Callable[[Any, RequestContext], None]
"""Applies a ModelServerConfig; returns when its new models are available."""

_COUNTED = ("Predict", "Classify", "Regress")
_RUN_MODELS = {*_COUNTED, "MultiInference"}
_PATH_COMPONENT = re.compile(r"[^/\0]*")


def service_calls(service: PredictionService, reload: Reload) -> dict[str, Rpc]:
    """Return the calls of PredictionService and ModelService by path."""
    handlers = service.handlers()
    handlers["HandleReloadConfigRequest"] = partial(_reload, reload)
    return {
        METHODS[name].path: Rpc(
            partial(messages.parse_request, name),
            handle,
            METHODS[name].request,
            api=name if name in _COUNTED else None,
            runs_model=name in _RUN_MODELS,
        )
        for name, handle in handlers.items()
    }


def _reload(reload: Reload, request: Any, context: RequestContext) -> Any:
    """HandleReloadConfigRequest; returns by how much the named counters grew during the call."""
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    before = metrics.counters()
    reload(request.config, context)
    after = metrics.counters()
    response = schema.ReloadConfigResponse()
    response.status.SetInParent()
    for name in sorted(set(request.metric_names)):
        response.metric.add(name=name, int64_value_increase=after.get(name, 0) - before.get(name, 0))
    return response


class Profiler:
    """tensorflow.ProfilerService: records traces of the process for TensorBoard, one at a time.

    TensorFlow has one tracer per process. The client is `tf.profiler.experimental.client.trace`.
    """

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._terminated = threading.Event()

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path; without Monitor, as TensorFlow's own service."""
        return {
            PROFILER + "Profile": Rpc(schema.ProfileRequest.FromString, self.profile),
            PROFILER + "Terminate": Rpc(schema.TerminateRequest.FromString, self.terminate),
        }

    def profile(self, request: Any, context: RequestContext) -> Any:
        """Trace for `duration_ms`; write REPOSITORY_ROOT/SESSION_ID/HOST_NAME.xplane.pb if a root is given."""
        for name in (request.session_id, request.host_name):
            if not _PATH_COMPONENT.fullmatch(name) or name in (".", ".."):
                raise invalid_argument(
                    f"invalid name {name!r}: session_id and host_name must be single path components"
                )
        if "\0" in request.repository_root:
            raise invalid_argument(f"invalid repository_root {request.repository_root!r}: must be the path of a folder")
        if not self._busy.acquire(blocking=False):
            raise StatusError(Code.UNAVAILABLE, "Another profiler session active.")
        self._terminated.clear()
        try:
            with context.on_cancel(self._terminated.set):
                trace = self._trace(min(request.duration_ms / 1000, context.remaining_s() or threading.TIMEOUT_MAX))
        finally:
            self._busy.release()
        if request.repository_root:
            _write(Path(request.repository_root, request.session_id), f"{request.host_name}.xplane.pb", trace)
        space = schema.XSpace.FromString(trace)
        is_empty = not any(line.events for plane in space.planes for line in plane.lines)
        return schema.ProfileResponse(empty_trace=is_empty, xspace=trace if request.emit_xspace else b"")

    def terminate(self, request: Any, context: RequestContext) -> Any:  # noqa: ARG002
        """End the running trace."""
        self._terminated.set()
        return schema.TerminateResponse()

    def _trace(self, duration_s: float) -> bytes:
        """Return a serialized XSpace, which the tracer only writes to a file."""
        with tempfile.TemporaryDirectory() as folder:
            tf.profiler.experimental.start(folder)
            self._terminated.wait(duration_s)
            tf.profiler.experimental.stop()
            path = next(Path(folder).rglob("*.xplane.pb"), None)
            if path is None:
                raise StatusError(Code.UNAVAILABLE, "The tracer has written no trace.")
            return path.read_bytes()


def _write(folder: Path, name: str, content: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    except OSError as error:
        raise StatusError(Code.FAILED_PRECONDITION, f"{folder / name}; {error.strerror}") from error
