"""tensorflow.ProfilerService: records traces of the process for TensorBoard.

Its client is `tf.profiler.experimental.client.trace`.
"""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from typing import Any

import tensorflow as tf

from savedmodel_bakery.serving.admission.context import RequestContext
from savedmodel_bakery.serving.call.methods import Rpc
from savedmodel_bakery.wire import schema
from savedmodel_bakery.wire.status import Code, StatusError, invalid_argument

_SERVICE = "/tensorflow.ProfilerService/"
_NAME = re.compile(r"[^/\0]*")


class Profiler:
    """The service. Records one trace at a time, as TensorFlow has one tracer per process."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._terminated = threading.Event()

    def calls(self) -> dict[str, Rpc]:
        """Return the calls by path; without Monitor, as TensorFlow's own service."""
        return {
            _SERVICE + "Profile": Rpc(schema.ProfileRequest.FromString, self.profile),
            _SERVICE + "Terminate": Rpc(schema.TerminateRequest.FromString, self.terminate),
        }

    def profile(self, request: Any, context: RequestContext) -> Any:
        """Trace for `duration_ms`; write REPOSITORY_ROOT/SESSION_ID/HOST_NAME.xplane.pb if a root is given."""
        for name in (request.session_id, request.host_name):
            if not _NAME.fullmatch(name) or name in (".", ".."):
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
